"""Pairs for where queries, keys and values come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block, set_config
from tests.experiments.pairs.parts import linear

NAMES = ("q_proj", "k_proj", "v_proj")


def values_are_keys(block: Any) -> None:
    block.self_attn.v_proj = block.self_attn.k_proj


class Elsewhere:
    """An attention that keeps its value projection under another name."""

    @property
    def v_proj(self) -> nn.Module:
        return self.third


def values_elsewhere(block: Any) -> None:
    attention = block.self_attn
    attention.third = attention.v_proj
    del attention.v_proj
    attention.__class__ = type(type(attention).__name__, (Elsewhere, type(attention)), {})


def projects_no_values(module: Any) -> bool:
    return "v_proj" not in blocks(module)[0].self_attn._modules


class SideBySide(nn.Module):
    """Three projections whose outputs are put in a row."""

    def __init__(self, fused: Any, widths: tuple[int, ...]) -> None:
        super().__init__()
        for name, weight in zip(NAMES, fused.weight.data.split(widths), strict=True):
            made = linear(fused.in_features, len(weight))
            made.weight.data = weight.clone()
            self.add_module(name, made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([getattr(self, name)(x) for name in NAMES], -1)


def side_by_side(block: Any) -> None:
    attention = block.self_attn
    rest = attention.num_key_value_heads * attention.head_dim
    attention.qkv_proj = SideBySide(attention.qkv_proj, (attention.o_proj.in_features, rest, rest))


class Share(nn.Module):
    """A part of what a projection gives, which others take parts of too."""

    def __init__(self, whole: nn.Linear, start: int, size: int) -> None:
        super().__init__()
        self.whole, self.start, self.size = whole, start, size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.whole(x).narrow(-1, self.start, self.size)


def shared(block: Any) -> None:
    """Queries, keys and values are parts of one projection."""
    attention, start = block.self_attn, 0
    weights = [getattr(attention, name).weight.data for name in NAMES]
    whole = linear(weights[0].shape[1], sum(map(len, weights)))
    whole.weight.data = torch.cat(weights)
    for name, weight in zip(NAMES, weights, strict=True):
        setattr(attention, name, Share(whole, start, len(weight)))
        start += len(weight)


def names_a_fused_projection(module: Any) -> bool:
    return any("qkv" in name for name, _ in module.named_modules())


class Lent(nn.Module):
    """A projection that keeps what it gave."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.given: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given[:] = [self.inner(x)]
        return self.given[0]


class Borrowed(nn.Module):
    """Gives what another block's projection gave."""

    def __init__(self, lender: Lent) -> None:
        super().__init__()
        self.given = lender.given

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.given[0].clone()


def borrows(module: Any) -> None:
    """The third block takes the keys and values of the second."""
    lender, borrower = blocks(module)[1].self_attn, blocks(module)[2].self_attn
    for name in ("k_proj", "v_proj"):
        setattr(lender, name, Lent(getattr(lender, name)))
        setattr(borrower, name, Borrowed(getattr(lender, name)))


def names_borrowers(module: Any) -> bool:
    return getattr(module.config.get_text_config(decoder=True), "num_kv_shared_layers", 0) > 0


class Halved(nn.Module):
    """A projection twice as wide as it says; what it keeps for itself is the gate."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.inner = linear(before.in_features, 2 * before.out_features)
        self.gate: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, gate = self.inner(x).chunk(2, -1)
        self.gate[:] = [gate.sigmoid()]
        return queries


def with_gate(used: bool) -> Callable[[Any], None]:
    def change(block: Any) -> None:
        halved = block.self_attn.q_proj = Halved(block.self_attn.q_proj)
        if used:
            block.self_attn.o_proj.register_forward_pre_hook(lambda _, args: (args[0] * halved.gate[0],))

    return each_block(change)


def projects_more(module: Any) -> bool:
    """Whether the query projection is wider than what the output projection takes."""
    attention = blocks(module)[0].self_attn
    width = next(attention.q_proj.parameters()).shape[0]
    return width > attention.o_proj.in_features


def names_a_gate(module: Any) -> bool:
    return bool(getattr(module.config, "attn_output_gate", False))


PAIRS = (
    Pair(
        "values-from-keys",
        yes=Twin("mistral", mutate=each_block(values_are_keys)),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=each_block(values_are_keys)),
                projects_no_values,
                "yes",
                "the value projection is the key projection",
            ),
            Mutant(
                Twin("mistral", mutate=each_block(values_elsewhere)),
                projects_no_values,
                "no",
                "the value projection has another name",
            ),
        ),
    ),
    Pair(
        "fused-qkv",
        yes=Twin("phi3"),
        no=Twin("phi3", mutate=each_block(side_by_side)),
        mutants=(
            Mutant(
                Twin("phi3", mutate=each_block(side_by_side)),
                names_a_fused_projection,
                "no",
                "three projections in a module called qkv_proj",
            ),
            Mutant(
                Twin("mistral", mutate=each_block(shared)),
                names_a_fused_projection,
                "yes",
                "three names for parts of one projection",
            ),
        ),
    ),
    Pair(
        "borrowed-kv",
        yes=Twin("gemma4_text"),
        no=Twin("gemma4_text", config={"num_kv_shared_layers": 0}),
        mutants=(
            Mutant(
                Twin("mistral", mutate=borrows), names_borrowers, "yes", "no config entry names borrowers", blocks=[2]
            ),
            Mutant(
                Twin("mistral", mutate=set_config(num_kv_shared_layers=1)),
                names_borrowers,
                "no",
                "the config names a borrower",
            ),
        ),
    ),
    Pair(
        "gated-query",
        yes=Twin("mistral", mutate=with_gate(True)),
        no=Twin("mistral"),
        mutants=(
            Mutant(Twin("mistral", mutate=with_gate(True)), names_a_gate, "yes", "no config entry names the gate"),
            Mutant(
                Twin("mistral", mutate=with_gate(False)),
                projects_more,
                "no",
                "what the projection gives beside the queries is not used",
            ),
        ),
    ),
)
