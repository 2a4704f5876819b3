"""The factory's twins of every decoder: pinned, of the real class, lively, and of the published checkpoint's kind."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from probe import registry
from probe.checkpoints import digest, factory
from probe.checkpoints.factory import check, pattern, pins, sizes, sources
from probe.checkpoints.factory.adjust import ADJUST
from probe.checkpoints.factory.workers import run
from probe.checkpoints.published import published
from probe.errors import ProbeError

TWINS = [(model_type, name) for model_type, name in check.rows() if model_type not in factory.unbuildable()]
each_twin = pytest.mark.parametrize(("model_type", "name"), TWINS, ids=[f"{m}-{n}" for m, n in TWINS])

ONCE = {
    "gemma3n_text/tiny": (2, "of each attention type, the last block that has keys of its own lends them"),
    "gemma4_text/tiny": (2, "of each attention type, the last block that has keys of its own lends them"),
    "gemma4_unified_text/tiny": (4, "of each attention type, the last block lends its keys; the others do not"),
    "gpt_neox_japanese/tiny": (1, "only the last block adds a bias to its attention"),
    "inkling2_loop_text/tiny": (2, "the first block has no earlier one to attend to, nor has the first after the loop"),
    "inkling2_text/tiny": (1, "the first block has no earlier one to attend to"),
    "modernbert-decoder/tiny": (1, "the first block has no norm before its attention"),
    "qwen4_exp_text/tiny": (2, "the tables of n-grams have another prime number of rows on every block"),
    "rwkv/tiny": (1, "only the first block norms the embeddings"),
    "zaya/tiny": (1, "the first router has no earlier one to mix with"),
    "zaya/tiny-sliding": (1, "the first router has no earlier one to mix with"),
}
"""How many kinds of block stand once where the class allows no second, and why."""

COMPUTED = {
    "apertus": re.compile(r"act_fn\.(beta|eps)$"),
    "apertus1p5_text": re.compile(r"act_fn\.(beta|eps)$"),
    "minimax": re.compile(r"(slope_rate|_decay)$"),
}
"""Saved buffers whose values the class computes."""

TERNARY = {"bitnet/tiny": re.compile("_proj.weight$")}
"""Weights that a published checkpoint stores as -1, 0 and 1."""

CHANGED = {"rwkv/tiny": "the first forward divides the weights that write to the halved stream"}
"""Twins whose weights a forward changes, and why: they are pinned as they are built."""

WINDOWS = re.compile(r"(?<!max_)(window(_size|_len)?|chunk_size|index_topk|block_size)$")


@dataclass(frozen=True)
class Ran:
    module: Any
    logits: torch.Tensor
    again: torch.Tensor
    stream: list[torch.Tensor]
    chosen: list[torch.Tensor]


@cache
def ran(model_type: str, name: str) -> Ran:
    """A twin, its logits [seq, vocab] of two forwards, its blocks' outputs and its routers' choices of experts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = factory.build_default(model_type, name)
    stream: list[torch.Tensor] = []

    def seen(block: Any, args: Any, out: Any) -> None:
        stream.append(out[0] if isinstance(out, (tuple, list)) else out)

    def routed(router: Any, args: Any, out: Any) -> None:
        parts = out if isinstance(out, tuple) else ()
        chosen.extend(x for x in parts if isinstance(x, torch.Tensor) and x.dtype == torch.int64 and x.numel() > 1)

    chosen: list[torch.Tensor] = []
    hooks = [block.register_forward_hook(seen) for block in check.stack(module)[1]]
    hooks += [m.register_forward_hook(routed) for n, m in module.named_modules() if re.search(r"(gate|router)$", n)]
    with torch.no_grad():
        logits, again = (module(**factory.default_inputs(module)).logits[0].float() for _ in range(2))
    for hook in hooks:
        hook.remove()
    return Ran(module, logits, again, stream, chosen)


def test_every_decoder_has_a_twin_or_a_reason() -> None:
    every, without = set(factory.decoders()), factory.unbuildable()
    assert len(every) >= 150 and set(without) <= every and len(without) <= 8 and all(without.values())
    assert {model_type for model_type, _ in TWINS} == every - set(without)
    assert all("tiny" in factory.default_twins(model_type) for model_type in every - set(without))


def test_what_the_tables_name_exists() -> None:
    known = {f"{model_type}/{name}" for model_type, name in TWINS}
    decoders = set(factory.decoders())
    assert {key for key in ADJUST if key not in known} <= decoders and set(ONCE) <= known
    assert all(why for _, why in ADJUST.values())
    named = json.loads((registry.FAMILIES / "twins.json").read_text())
    assert {*named, *sources.WRAPPED, *COMPUTED} <= decoders
    assert set(sources.NO_DECODER) <= set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def test_the_families_table_agrees_with_transformers() -> None:
    classes, table = factory.classes(), registry.table()
    assert set(table) <= set(classes)
    assert {name: row.class_name or classes[name] for name, row in table.items()} == {n: classes[n] for n in table}
    assert {row.group for row in table.values()} == {"text", "text-in-wrapper"}
    assert all(bool(row.wrapper) == (row.group == "text-in-wrapper") for row in table.values())


def test_lock_holds_the_twins_and_no_others() -> None:
    assert sorted(json.loads(pins.LOCK.read_text())) == sorted(f"{m}/{n}" for m, n in TWINS)


@each_twin
def test_is_the_pinned_one(model_type: str, name: str) -> None:
    fresh = f"{model_type}/{name}" in CHANGED
    module = factory.build_default(model_type, name) if fresh else ran(model_type, name).module
    assert pins.verified_digest(model_type, name, module)


def test_another_digest_is_refused() -> None:
    module = factory.build_default("llama", overrides={"num_hidden_layers": 2})
    with pytest.raises(ProbeError, match="factory.pins"):
        pins.verified_digest("llama", "tiny", module)


def test_a_pin_holds_on_a_processor_with_other_last_digits() -> None:
    """MiniMax saves the exponentials that its class computes; what a checkpoint brings is pinned to the bit."""
    module = copy.deepcopy(ran("minimax", "tiny").module)
    before, attention = pins.of_twin(module), module.model.layers[0].self_attn
    attention.slope_rate.mul_(1 + 2**-22)
    assert pins.of_twin(module) == before != digest.of_weights(module)
    with torch.no_grad():
        attention.qkv_proj.weight.mul_(1 + 2**-22)
    assert pins.of_twin(module) != before


@each_twin
def test_is_the_real_class_and_runs(model_type: str, name: str) -> None:
    found = ran(model_type, name)
    causal, wrappers = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )
    named = causal.get(model_type) or wrappers[sources.WRAPPED[model_type]]
    assert type(found.module).__name__ in ([named] if isinstance(named, str) else named)
    assert not found.module.training and not any(p.requires_grad for p in found.module.parameters())
    assert {p.dtype for p in found.module.parameters() if p.is_floating_point()} == {torch.float32}
    assert torch.isfinite(found.logits).all() and found.logits.equal(found.again)
    assert 0.05 < found.logits.std() < 6, "the logits vanish or saturate"
    assert found.logits.std(dim=0).mean() > 0.02, "the logits are the same at every position"


@each_twin
def test_is_lively(model_type: str, name: str) -> None:
    computed = COMPUTED.get(model_type, re.compile("(?!)"))
    state = {k: v for k, v in ran(model_type, name).module.state_dict().items() if not computed.search(k)}
    seen: dict[Any, int] = {}
    ternary = TERNARY.get(f"{model_type}/{name}", re.compile("(?!)"))
    for key, tensor in state.items():
        if ternary.search(key):
            assert tensor.unique().tolist() == [-1, 0, 1], key
            continue
        if not tensor.is_floating_point():
            assert tensor.numel() == 1 or tensor.unique().numel() > 1, key
            continue
        assert torch.isfinite(tensor).all(), key
        assert not ((tensor == 0) | (tensor == 1)).any(), key
        assert tensor.numel() < 4 or tensor.std() > 0.02 * min(1.0, tensor.abs().max()), key
        numbers = (tuple(tensor.shape), tuple(tensor.flatten()[:4].tolist()))
        assert seen.setdefault(numbers, tensor.data_ptr()) == tensor.data_ptr(), f"{key} equals another tensor"


@each_twin
def test_activations_stay_in_range(model_type: str, name: str) -> None:
    found = ran(model_type, name)
    deviations = [x.float().std().item() for x in found.stream]
    assert deviations and all(0.05 < x < 60 for x in deviations), deviations


@each_twin
def test_routers_choose_several_experts(model_type: str, name: str) -> None:
    assert all(len(chosen.unique()) >= 2 for chosen in ran(model_type, name).chosen)


def test_most_mixtures_were_seen_choosing() -> None:
    assert sum(bool(ran(*twin).chosen) for twin in TWINS) > 50


@each_twin
def test_windows_and_chunks_are_shorter_than_the_prompt(model_type: str, name: str) -> None:
    module = ran(model_type, name).module
    length = factory.default_inputs(module)["input_ids"].shape[1]
    text = module.config.get_text_config(decoder=True)
    sizes_ = {k: v for k, v in vars(text).items() if WINDOWS.search(k) and k != "chunk_size_feed_forward"}
    assert all(not isinstance(size, int) or size <= length / 2 for size in sizes_.values()), sizes_


@each_twin
def test_has_two_blocks_of_every_kind(model_type: str, name: str) -> None:
    _, blocks = check.stack(ran(model_type, name).module)
    once = sum(count == 1 for count in Counter(check.kind(block) for block in blocks).values())
    allowed, why = ONCE.get(f"{model_type}/{name}", (0, "every kind stands twice"))
    assert once == allowed, why


@each_twin
def test_keeps_the_published_flags(model_type: str, name: str) -> None:
    stem = sources.twin(model_type, name)
    if stem is None:
        return
    raw, ours = published(stem).config, ran(model_type, name).module.config
    full = CONFIG_MAPPING[raw["model_type"]](**copy.deepcopy(raw))
    theirs, ours = full.get_text_config(decoder=True), ours.get_text_config(decoder=True)
    lines = [ADJUST[key][0] for key in (model_type, f"{model_type}/{name}") if key in ADJUST]
    adjusted = {path.rpartition(".")[2] for line in lines for path in line}
    for key, value in vars(theirs).items():
        flag = isinstance(value, (bool, str)) and not re.search("^_|dtype|model_type|pattern|version", key)
        if flag and key not in adjusted:
            assert vars(ours).get(key) == value, key
    heads, kv_heads = "num_attention_heads", "num_key_value_heads"
    if all(isinstance(vars(theirs).get(key), int) for key in (heads, kv_heads)):
        assert (vars(ours)[kv_heads] < vars(ours)[heads]) == (vars(theirs)[kv_heads] < vars(theirs)[heads])


def test_overrides_change_the_twin_and_leave_the_other_weights() -> None:
    more = factory.build_default("qwen3", overrides={"num_hidden_layers": 5, "layer_types": None}).state_dict()
    assert len({key.split(".")[2] for key in more if ".layers." in key}) == 5
    for key, tensor in ran("qwen3", "tiny").module.state_dict().items():
        assert more[key].equal(tensor), key


def test_linears_that_round_are_not_compiled() -> None:
    """A quantiser's rounding compiles itself when it is called, for which a machine may have no compiler."""
    seen: list[Any] = []
    rounded = torch.compile(lambda x: x.round(), backend=lambda graph, _: seen.append(graph) or graph.forward)
    with torch.compiler.set_stance("default"):
        rounded(torch.rand(2))
        assert len(seen) == 1
        factory.build_default("bitnet")
        rounded(torch.rand(2, 3))
        assert len(seen) == 1


def test_a_twin_has_the_linears_its_config_names() -> None:
    plain = factory.build_default("bitnet", overrides={"quantization_config": None})
    kinds = [{type(m).__name__ for m in each.modules()} for each in (plain, ran("bitnet", "tiny").module)]
    assert ["AutoBitLinear" in found for found in kinds] == [False, True]
    assert all("Linear" in found for found in kinds), "the head is rounded nowhere"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ProbeError, match="qwen3"):
        factory.build_default("qwen3x")
    with pytest.raises(ProbeError, match="tiny-grouped"):
        factory.build_default("falcon", "tiny-vision")


def test_sdpa_and_eager_agree() -> None:
    fused = factory.build_default("qwen3", attn="sdpa")
    with torch.no_grad():
        logits = fused(**factory.default_inputs(fused)).logits[0]
    assert fused.config._attn_implementation == "sdpa"
    assert torch.allclose(logits, ran("qwen3", "tiny").logits, atol=1e-4)


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ("sssfsssf", "sfsf"),
        ("dsssssss", "ddss"),
        ("dddlllfllllf", "ddlflf"),
        ("aaaaaaaa", "aaa"),
        ("ab" + "a" * 20 + "c" + "a" * 20 + "c", "abbacc"),
    ],
)
def test_a_stack_is_cut_to_two_blocks_of_each_kind(kinds: str, chosen: str) -> None:
    assert "".join(kinds[i] for i in pattern.choose(kinds)) == chosen


def test_a_share_of_the_head_that_turns_is_an_even_number_of_dimensions() -> None:
    assert sizes.rotary_factor(0.5, 16) == 0.5 and sizes.rotary_factor(0.4, 16) == 0.4
    assert sizes.rotary_factor(0.334, 24) == 0.334 and sizes.rotary_factor(0.125, 16) * 16 == 4


@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_linear", "minicpm3"])
def test_latent_values_are_narrower_than_queries_where_they_are_published_so(model_type: str) -> None:
    twin, full = factory.build_default(model_type, "tiny").config, CONFIG_MAPPING[model_type]()
    narrower = [c.v_head_dim < c.qk_nope_head_dim + c.qk_rope_head_dim for c in (twin, full)]
    assert narrower[0] == narrower[1] == (model_type != "glm4_moe_lite")


def test_a_hang_or_an_error_costs_one_twin() -> None:
    slow = next(run([("llama", "tiny")], limit=0.001))
    assert slow.error == "ran longer than 0 s"
    rows = list(run([("no-such", "tiny"), ("mistral", "tiny")]))
    assert "no-such" in (rows[0].error or "") and rows[1].error is None and rows[1].kinds == (3,)
