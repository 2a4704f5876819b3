"""Head-level values have the right head axis: one head zeroed by hand in the weights changes that head's slice alone.

Where a head's rows stand in a family's projections is written down here as its modeling code has it, as arithmetic on
row numbers; nothing of the derivation is used for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
import torch

from probe.standard import StandardizedTransformer
from probe.standard.inputs import prepare
from probe.standard.trace import Key, read_all
from tests.derive.summaries import standardized

NAMES = (
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_probabilities",
    "attention_head_outputs",
    "attention_premix",
    "attention_output",
)

Rows = Callable[[torch.Tensor, "Sizes"], torch.Tensor]
"""From the row numbers of a projection, ``[rows]``, to those of each head, ``[heads, rows of a head]``."""


@dataclass(frozen=True)
class Sizes:
    """A family's own words for how many heads there are, and how wide the two parts of a latent head are."""

    heads: int
    kv_heads: int
    nope: int
    value: int


@dataclass(frozen=True)
class Heads:
    """Where an attention keeps its heads: of each part the module, from the attention, and its rows.

    Attributes:
        repeated: whether the forward repeats each key and value for its queries before any tensor of its own holds it.
    """

    queries: tuple[str, Rows]
    keys: tuple[str, Rows]
    values: tuple[str, Rows]
    out: str
    repeated: bool = False


def _by_head(rows: torch.Tensor, of: Sizes) -> torch.Tensor:
    return rows.view(of.heads, -1)


def _by_kv_head(rows: torch.Tensor, of: Sizes) -> torch.Tensor:
    return rows.view(of.kv_heads, -1)


def separate(out: str = "o_proj", names: str = "q_proj k_proj v_proj") -> Heads:
    """A projection each, heads one after the other."""
    queries, keys, values = names.split()
    return Heads((queries, _by_head), (keys, _by_kv_head), (values, _by_kv_head), out)


def interleaved(fused: str, out: str) -> Heads:
    """One projection; each head has its query, key and value rows together."""

    def part(at: int) -> Rows:
        return lambda rows, of: rows.view(of.heads, 3, -1)[:, at]

    return Heads((fused, part(0)), (fused, part(1)), (fused, part(2)), out)


def blocked(fused: str, out: str) -> Heads:
    """One projection: all queries, then all keys, then all values."""

    def part(start: Callable[[Sizes], int], count: Callable[[Sizes], int]) -> Rows:
        def rows_of(rows: torch.Tensor, of: Sizes) -> torch.Tensor:
            by_head = rows.view(of.heads + 2 * of.kv_heads, -1)
            return by_head[start(of) : start(of) + count(of)]

        return rows_of

    return Heads(
        (fused, part(lambda of: 0, lambda of: of.heads)),
        (fused, part(lambda of: of.heads, lambda of: of.kv_heads)),
        (fused, part(lambda of: of.heads + of.kv_heads, lambda of: of.kv_heads)),
        out,
    )


def in_groups(fused: str, out: str) -> Heads:
    """One projection; each group has the rows of its queries, then those of its key and its value."""

    def grouped(rows: torch.Tensor, of: Sizes) -> torch.Tensor:
        return rows.view(of.kv_heads, of.heads // of.kv_heads + 2, -1)

    return Heads(
        (fused, lambda rows, of: grouped(rows, of)[:, :-2].flatten(0, 1)),
        (fused, lambda rows, of: grouped(rows, of)[:, -2]),
        (fused, lambda rows, of: grouped(rows, of)[:, -1]),
        out,
        repeated=True,
    )


def in_shards(fused: str, out: str, shards: int) -> Heads:
    """One projection in shards, each with its queries, then its values, then its keys."""

    def part(at: int) -> Rows:
        return lambda rows, of: rows.view(shards, 3, -1)[:, at].reshape(of.heads, -1)

    return Heads((fused, part(0)), (fused, part(2)), (fused, part(1)), out)


def latent(queries: str = "q_b_proj", fused: str = "kv_b_proj", out: str = "o_proj") -> Heads:
    """Keys and values from one small vector: each head has the rows of its key's part, then those of its value."""

    def part(at: int) -> Rows:
        return lambda rows, of: rows.view(of.heads, -1).split([of.nope, of.value], -1)[at]

    return Heads((queries, _by_head), (fused, part(0)), (fused, part(1)), out)


def gated() -> Heads:
    """A projection each; that of the queries has each head's gate after its query."""
    return Heads(
        ("q_proj", lambda rows, of: rows.view(of.heads, 2, -1)[:, 0]),
        ("k_proj", _by_kv_head),
        ("v_proj", _by_kv_head),
        "o_proj",
    )


LAYOUTS: dict[tuple[str, str], Heads] = {
    # queries of several heads to one key
    ("llama", "tiny"): separate(),
    ("qwen3", "tiny"): separate(),
    ("starcoder2", "tiny"): separate(),
    ("dbrx", "tiny"): blocked("Wqkv", "out_proj"),
    ("falcon", "tiny-grouped"): in_groups("query_key_value", "dense"),
    ("qwen3_next", "tiny"): gated(),
    # one key for all
    ("gemma", "tiny"): separate(),
    ("falcon", "tiny"): blocked("query_key_value", "dense"),
    ("gpt_bigcode", "tiny"): blocked("c_attn", "c_proj"),
    # fused, interleaved
    ("gpt_neox", "tiny"): interleaved("query_key_value", "dense"),
    ("bloom", "tiny"): interleaved("query_key_value", "dense"),
    ("falcon", "tiny-alibi"): interleaved("query_key_value", "dense"),
    ("persimmon", "tiny"): interleaved("query_key_value", "dense"),
    # fused, in blocks
    ("gpt2", "tiny"): blocked("c_attn", "c_proj"),
    ("openai-gpt", "tiny"): blocked("c_attn", "c_proj"),
    ("phi3", "tiny"): blocked("qkv_proj", "o_proj"),
    ("mpt", "tiny"): blocked("Wqkv", "out_proj"),
    ("codegen", "tiny"): in_shards("qkv_proj", "out_proj", shards=4),
    # latent
    ("deepseek_v2", "tiny"): latent("q_proj"),
    ("deepseek_v3", "tiny"): latent(),
    ("minicpm3", "tiny"): latent(),
    ("glm4_moe_lite", "tiny"): latent(),
    # arithmetic of their own
    ("gptj", "tiny"): separate("out_proj"),
    ("gpt_neo", "tiny"): separate("attention.out_proj", "attention.q_proj attention.k_proj attention.v_proj"),
    ("opt", "tiny"): separate("out_proj"),
    ("xglm", "tiny"): separate("out_proj"),
    ("ctrl", "tiny"): separate("dense", "Wq Wk Wv"),
    ("cpmant", "tiny"): separate("attention_out", "project_q project_k project_v"),
}


class Attention:
    """The first block's attention of a twin that has one, which can be read again after a change of its weights."""

    def __init__(self, family: str, name: str) -> None:
        self.model: StandardizedTransformer = standardized(family, name)
        _, self.inputs = prepare(self.model)
        self.block = next(
            index for index, block in enumerate(self.model.layers) if "self_attn" in _hosts(self.model, index)
        )
        self.layout = LAYOUTS[family, name]
        config = self.model.text_config
        if family == "falcon":  # its config counts keys of their own only in the newer architecture
            kv_heads = config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
        else:
            kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        widths = getattr(config, "qk_nope_head_dim", 0), getattr(config, "v_head_dim", 0)
        self.sizes = Sizes(config.num_attention_heads, kv_heads, *widths)
        self.before = self.read()

    @property
    def envoy(self) -> Any:
        return self.model.layers[self.block].self_attn

    def read(self) -> dict[str, torch.Tensor]:
        label = "model.layers[i].self_attn"

        def wanted(key: Key) -> bool:
            return (key.host, key.block) == (label, self.block) and key.name in NAMES

        return {key.name: value for key, value in read_all(self.model, self.inputs, wanted).items()}

    def after_zeroing(self, module: str, rows: torch.Tensor, *, columns: bool = False) -> dict[str, torch.Tensor]:
        """The values with rows of a projection at zero, its bias included, or with columns at zero."""
        native = self.envoy._module.get_submodule(module)
        kept = {name: parameter.detach().clone() for name, parameter in native.named_parameters()}
        weight = native.weight.data
        matrix = weight.T if type(native).__name__ == "Conv1D" else weight  # ``[out, in]``
        if columns:
            matrix[:, rows] = 0
        else:
            matrix[rows] = 0
            if native.bias is not None:
                native.bias.data[rows] = 0
        try:
            return self.read()
        finally:
            for name, parameter in native.named_parameters():
                parameter.data.copy_(kept[name])

    def rows(self, part: str, head: int) -> tuple[str, torch.Tensor]:
        module, rows = getattr(self.layout, part)
        native = self.envoy._module.get_submodule(module)
        return module, rows(torch.arange(self.width(native)), self.sizes)[head]

    @staticmethod
    def width(native: Any) -> int:
        """Rows of a projection."""
        return int(native.weight.shape[1 if type(native).__name__ == "Conv1D" else 0])

    def changed(self, after: dict[str, torch.Tensor]) -> dict[str, set[int]]:
        """Of each value with heads, those that are not as before."""
        found = {}
        for name, before in self.before.items():
            if name != "attention_output":
                axis = 2 if name in ("attention_head_outputs", "attention_premix") else 1
                moved = (after[name] - before).abs().movedim(axis, 0).flatten(1)
                moved = torch.where(before.movedim(axis, 0).flatten(1).abs() < 1e4, moved, 0)  # masked scores
                found[name] = {head for head, by in enumerate(moved.amax(1).tolist()) if by > 1e-5}
        return found

    def held(self, name: str, kv_head: int) -> set[int]:
        """The heads of the keys, or of the values, that are one of the projection's."""
        if not self.layout.repeated:
            assert self.before[name].shape[1] == self.sizes.kv_heads
        return {kv_head} if self.before[name].shape[1] == self.sizes.kv_heads else self.served(kv_head)

    def served(self, kv_head: int) -> set[int]:
        """The query heads that a key head serves."""
        group = self.sizes.heads // self.sizes.kv_heads
        return set(range(kv_head * group, (kv_head + 1) * group))


def _hosts(model: StandardizedTransformer, index: int) -> set[str]:
    return {label.removeprefix("model.layers[i].") for label, block, _ in model.hosts() if block == index}


@lru_cache(maxsize=1)
def attention(family: str, name: str) -> Attention:
    return Attention(family, name)


@pytest.fixture(params=LAYOUTS, ids=["/".join(twin) for twin in LAYOUTS], scope="module")
def subject(request: pytest.FixtureRequest) -> Attention:
    return attention(*request.param)


PATTERN = ("attention_scores", "attention_probabilities")
OUTPUTS = ("attention_head_outputs", "attention_premix")


def _expected(**heads: set[int]) -> dict[str, set[int]]:
    """By value, from what is said of the queries, the keys, the values, the pattern and the outputs."""
    found = {f"attention_{name}": heads.get(name, set()) for name in ("queries", "keys", "values")}
    found |= dict.fromkeys(PATTERN, heads.get("pattern", set()))
    return found | dict.fromkeys(OUTPUTS, heads.get("outputs", set()))


def test_every_head_level_value_is_read(subject: Attention) -> None:
    assert set(subject.before) == set(NAMES)
    assert subject.before["attention_queries"].shape[1] == subject.sizes.heads
    assert subject.before["attention_premix"].shape[2] == subject.sizes.heads


def test_a_query_head(subject: Attention) -> None:
    for head in (1, subject.sizes.heads - 1):
        after = subject.after_zeroing(*subject.rows("queries", head))
        assert subject.changed(after) == _expected(queries={head}, pattern={head}, outputs={head})


def test_a_key_head(subject: Attention) -> None:
    head = subject.sizes.kv_heads - 1
    after = subject.after_zeroing(*subject.rows("keys", head))
    served = subject.served(head)
    assert subject.changed(after) == _expected(
        keys=subject.held("attention_keys", head), pattern=served, outputs=served
    )


def test_a_value_head(subject: Attention) -> None:
    head = subject.sizes.kv_heads - 1
    after = subject.after_zeroing(*subject.rows("values", head))
    assert subject.changed(after) == _expected(
        values=subject.held("attention_values", head), outputs=subject.served(head)
    )


def test_the_columns_that_a_head_is_mixed_with(subject: Attention) -> None:
    """A head's columns at zero take away what an edit of the premix, that head set to zero, takes away."""
    head = subject.sizes.heads - 2
    native = subject.envoy._module.get_submodule(subject.layout.out)
    inside = native.weight.shape[0 if type(native).__name__ == "Conv1D" else 1]
    columns = torch.arange(inside).view(subject.sizes.heads, -1)[head]
    after = subject.after_zeroing(subject.layout.out, columns, columns=True)
    with torch.no_grad(), subject.model.trace(**subject.inputs):
        subject.envoy.attention_premix[:, :, head] = 0
        edited = subject.envoy.attention_output.save()
    assert subject.changed(after) == _expected()
    assert float((after["attention_output"] - subject.before["attention_output"]).abs().max()) > 1e-3
    torch.testing.assert_close(after["attention_output"], edited, rtol=1e-5, atol=1e-5)
