"""Small blocks, one for each kind of part that a block's sum can have: as text, in numbers, and under an edit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from probe.wiring.anatomy import BlockAnatomy, Underivable, derive, held_value
from probe.wiring.sums import multiplier, text, value

WIDTH, LANES = 8, 3


class Block(nn.Module):
    """Parts that blocks are made from; ``arrange`` is the forward."""

    def __init__(self, arrange: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.later_norm = nn.LayerNorm(WIDTH)
        self.first = nn.Sequential(nn.Linear(WIDTH, 16), nn.SiLU(), nn.Linear(16, WIDTH))
        self.second = nn.Sequential(nn.Linear(WIDTH, 16), nn.SiLU(), nn.Linear(16, WIDTH))
        self.rate = nn.Parameter(torch.randn(WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.weights = nn.Linear(WIDTH, LANES)
        self.matrix = nn.Linear(WIDTH, LANES * LANES)
        self.nothing = nn.Identity()
        self.scale = 0.3
        self.outside = torch.randn(1, 5, WIDTH)
        self.arrange = arrange

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.arrange(self, x)


def _interpolated(b: Any, x: torch.Tensor) -> torch.Tensor:
    h = b.norm(x)
    return h + (b.rate * b.scale).abs() * (b.first(h) - h)


def _gated_interpolation(b: Any, x: torch.Tensor) -> torch.Tensor:
    return x + b.first(b.norm(x)) * torch.sigmoid(b.second(x))


def _lanes(b: Any, x: torch.Tensor) -> torch.Tensor:
    """The lanes are the last axis but one; the matrix is used transposed."""
    one = x.mean(dim=-2)
    comb = b.matrix(one).view(*one.shape[:-1], LANES, LANES)
    added = b.weights(one).unsqueeze(-1) * b.first(b.norm(one)).unsqueeze(-2)
    return added + torch.matmul(comb.transpose(-1, -2), x)


def _folded_lanes(b: Any, x: torch.Tensor) -> torch.Tensor:
    one = x.unflatten(-1, (LANES, WIDTH)).mean(dim=-2)
    added = b.first(b.norm(one)).unsqueeze(-2) * b.weights(one).unsqueeze(-1)
    return x + added.flatten(-2)


def _lanes_in_front(b: Any, x: torch.Tensor) -> torch.Tensor:
    """The lanes are the first axis: mixed, one of them worked on, the change spread, something added to the others."""
    comb = b.matrix(x[0]).view(*x.shape[1:-1], LANES, LANES)
    mixed = torch.matmul(x.permute(1, 2, 3, 0), comb).permute(3, 0, 1, 2)
    mixed += x
    active = mixed[0]
    change = (active + b.first(b.norm(active))) / 2 - active
    weights = b.weights(active).permute(2, 0, 1).unsqueeze(-1)
    out = change.repeat(LANES, 1, 1, 1) * weights
    out += mixed
    out[1:] += b.second(b.later_norm(out[0]))
    return out


FEW, MANY, FOLDED = (1, 5, WIDTH), (1, 5, LANES, WIDTH), (1, 5, LANES * WIDTH)

ARRANGED: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], tuple[int, ...], str]] = {
    "sequential": (
        lambda b, x: (h := b.first(b.norm(x)) + x) + b.second(b.later_norm(h)),
        FEW,
        "x + a + b",
    ),
    "scaled": (
        lambda b, x: (x * b.rate + b.first(b.norm(x)) * b.scale) * 0.5,
        FEW,
        "(x * rate + a * scale) * 0.5",
    ),
    "divided": (lambda b, x: (x + b.first(x)) / 4, FEW, "(x + a) * 0.25"),
    "taken off": (lambda b, x: x - b.first(b.norm(x)), FEW, "x - a"),
    "added parameter": (lambda b, x: x + (b.first(b.norm(x)) + b.bias), FEW, "x + a + bias"),
    "normed stream": (lambda b, x: b.norm(x + b.first(x)), FEW, "norm(x + a)"),
    "identity": (lambda b, x: b.nothing(x) + b.first(b.nothing(x)), FEW, "x + a"),
    "stream anew": (lambda b, x: (h := b.first(b.norm(x))) + b.second(b.later_norm(h)), FEW, "a + b"),
    "in place": (lambda b, x: b.first(b.norm(x)).add_(x), FEW, "x + a"),
    "interpolated": (
        _interpolated,
        FEW,
        "(1 - abs(rate * scale)) * norm(x) + abs(rate * scale) * a",
    ),
    "gate": (_gated_interpolation, FEW, "x + a * mlp_gate"),
    "lanes": (_lanes, MANY, "mlp_combᵀ · x + mlp_post ⊗ a"),
    "folded lanes": (_folded_lanes, FOLDED, "x + mlp_post ⊗ a"),
    "lanes in front": (
        _lanes_in_front,
        (LANES, 1, 5, WIDTH),
        "mixed + mlp_post ⊗ ((mixed[0] + a) * 0.5 - mixed[0]) + (b on lanes 1:), where mixed = x + combᵀ · x",
    ),
}


def _derived(name: str) -> tuple[Block, torch.Tensor, BlockAnatomy]:
    arrange, shape, _ = ARRANGED[name]
    torch.manual_seed(0)
    block, x = Block(arrange).eval(), torch.randn(shape)
    (anatomy,) = derive([block], lambda: block(x.clone()))
    return block, x, anatomy


@pytest.mark.parametrize("name", ARRANGED)
def test_the_sum_reads_as_the_code_does(name: str) -> None:
    _, _, anatomy = _derived(name)
    assert text(anatomy.tree, "x", ["a", "b"]) == ARRANGED[name][2]


@pytest.mark.parametrize("name", ARRANGED)
def test_the_sum_is_the_output(name: str) -> None:
    block, x, anatomy = _derived(name)
    with torch.no_grad():
        assert torch.allclose(anatomy.evaluate(block, x), block(x.clone()), atol=1e-5)


@pytest.mark.parametrize("name", ARRANGED)
def test_every_term_counts(name: str) -> None:
    block, x, anatomy = _derived(name)
    with torch.no_grad():
        right = block(x.clone())
        for place in range(len(anatomy.terms)):
            terms = [term.tensor * (1 + (own == place)) for own, term in enumerate(anatomy.terms)]
            wrong = value(
                anatomy.tree,
                x,
                terms,
                partial(held_value, block, anatomy),
                lambda norm, part: block.get_submodule(norm)(part),
            )
            assert float((wrong - right).abs().max()) > 1e-2


NO_CONSTANT = {"normed stream", "gate", "lanes", "folded lanes", "lanes in front"}


@pytest.mark.parametrize("name", ARRANGED)
def test_an_edit_of_the_last_term_moves_the_output_by_its_multiplier(name: str) -> None:
    block, x, anatomy = _derived(name)
    term = anatomy.terms[-1]
    found = multiplier(anatomy.tree, len(anatomy.terms) - 1, partial(held_value, block, anatomy))
    assert (found is None) == (name in NO_CONSTANT)
    if found is None:
        return
    edit = torch.randn(term.tensor.shape)
    with torch.no_grad():
        before = block(x.clone())
        handle = block.get_submodule(term.leaf).register_forward_hook(lambda _, __, output: output + edit)
        moved = block(x.clone()) - before
        handle.remove()
    assert torch.allclose(moved, (edit * found).reshape(moved.shape), atol=1e-5)


def test_a_gate_says_which_module_returned_it() -> None:
    _, _, anatomy = _derived("lanes")
    assert {name: (gate.path, tuple(gate.tensor.shape)) for name, gate in anatomy.gates.items()} == {
        "mlp_post": ("weights", (1, 5, LANES, 1)),
        "mlp_comb": ("matrix", (1, 5, LANES, LANES)),
    }
    assert [term.hosts for term in anatomy.terms] == [("first",)]
    assert [term.gates for term in anatomy.terms] == [("mlp_post",)]


def test_a_block_that_runs_twice_is_derived_from_its_first_run() -> None:
    block = Block(ARRANGED["sequential"][0]).eval()
    first, second = torch.randn(FEW), torch.randn(FEW)
    (anatomy,) = derive([block], lambda: (block(first), block(second)))
    with torch.no_grad():
        assert torch.allclose(anatomy.evaluate(block, first), block(first), atol=1e-5)


REFUSED: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], str]] = {
    "nothing is added": (lambda b, x: b.first(x), "adds it to nothing"),
    "not from the input": (lambda b, x: b.outside.sin(), "not made from its input"),
    "added from outside": (lambda b, x: x + b.first(x) + b.outside, "that is not made from its input"),
    "times something from outside": (lambda b, x: x * b.outside + b.first(x), "by a tensor from outside the block"),
    "an operation of its own": (lambda b, x: x + b.first(x).sin(), "an operation of its own made"),
    "other axes": (
        lambda b, x: (x.transpose(1, 2) + b.bias[:5]).transpose(1, 2) + b.first(x),
        "takes its stream through an operation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_sum_is_refused_in_one_sentence(name: str) -> None:
    arrange, said = REFUSED[name]
    block, x = Block(arrange).eval(), torch.randn(FEW)
    with pytest.raises(Underivable, match=said):
        derive([block], lambda: block(x))


def test_a_block_that_does_not_run_is_refused() -> None:
    with pytest.raises(Underivable, match="did not run"):
        derive([Block(lambda b, x: x)], lambda: None)
