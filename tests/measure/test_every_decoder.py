"""Every decoder's derived sum is its block's output, and the wiring of those that are wired unlike the rest."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from probe.checkpoints import factory
from probe.checkpoints.factory.check import stack
from probe.wiring.anatomy import BlockAnatomy, Term, derive
from probe.wiring.sums import text
from probe.wiring.symbols import first_tensor

TOLERANCE = 2e-5


class Derived(NamedTuple):
    """One block of a twin: its wiring, and the largest error of its sum relative to its output."""

    anatomy: BlockAnatomy
    error: float


@cache
def _blocks(model_type: str, twin: str = "tiny") -> list[Derived]:
    module = factory.build_default(model_type, twin)
    inputs = factory.default_inputs(module)
    blocks = list(stack(module)[1])
    entering: dict[int, torch.Tensor] = {}
    leaving: dict[int, torch.Tensor] = {}
    handles = []
    for index, block in enumerate(blocks):

        def enter(_: Any, args: Any, kwargs: Any, index: int = index) -> None:
            entering.setdefault(index, first_tensor([*args, *kwargs.values()]).clone())  # type: ignore[union-attr]

        def leave(_: Any, __: Any, output: Any, index: int = index) -> None:
            leaving.setdefault(index, first_tensor(output).clone())  # type: ignore[union-attr]

        handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(block.register_forward_hook(leave))
    anatomies = derive(blocks, lambda: module(**inputs))
    for handle in handles:
        handle.remove()
    found = []
    for index, (block, anatomy) in enumerate(zip(blocks, anatomies, strict=True)):
        right = leaving[index]
        error = (anatomy.evaluate(block, entering[index]) - right).abs().max() / right.abs().max()
        found.append(Derived(anatomy, float(error)))
    return found


@pytest.mark.parametrize("model_type", [name for name in factory.decoders() if name not in factory.unbuildable()])
def test_the_sum_holds_on_every_block(model_type: str) -> None:
    for twin in factory.default_twins(model_type):
        assert [block.error for block in _blocks(model_type, twin) if not block.error <= TOLERANCE] == []


class Wired(NamedTuple):
    """How some blocks of a twin are wired, as a line of ``odd_wiring.tsv`` has it: their topology, their sum over `x`
    and the terms' hosts, and the sublayers in forward order as kind, host, norm before, norm after.
    """

    topology: str
    sum: str
    sublayers: str


def _table() -> dict[tuple[str, str], list[Wired]]:
    table: dict[tuple[str, str], list[Wired]] = {}
    with (Path(__file__).parent / "odd_wiring.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            wired = Wired(row["topology"], row["sum"], row["sublayers"])
            table.setdefault((row["model_type"], row["twin"]), []).append(wired)
    return table


ODD = _table()

ONLY_SOME = {"beam": "its factors are other numbers on each block, and the table has the first block's"}
"""Families of which the table has some blocks, with the reason."""


def _host(term: Term) -> str:
    return "+".join(term.hosts) or term.leaf


def _wired(anatomy: BlockAnatomy) -> Wired:
    sublayers = [
        " ".join((term.kind, _host(term), term.pre_norm or "-", term.post_norm or "-")) for term in anatomy.terms
    ]
    sum_ = text(anatomy.tree, "x", [_host(term) for term in anatomy.terms])
    return Wired(anatomy.topology, sum_, "; ".join(sublayers))


@pytest.mark.parametrize(("model_type", "twin"), ODD)
def test_what_is_wired_unlike_the_rest(model_type: str, twin: str) -> None:
    found = {_wired(block.anatomy) for block in _blocks(model_type, twin)}
    listed = set(ODD[model_type, twin])
    assert listed <= found
    assert model_type in ONLY_SOME or found == listed


@pytest.mark.parametrize(
    ("model_type", "held"),
    [
        ("deepseek_v4", {"attention_post": "attn_hc", "mlp_comb": "ffn_hc"}),
        ("hy_v4", {"attention_post": "attn_hc", "mlp_post": "ffn_hc"}),
        ("qwen4_exp_text", {"attention_post": "attn_hyper_connection", "mlp_post": "mlp_hyper_connection"}),
        ("gemma3n_text", {"post": "altup.correction_coefs", "comb": "altup.prediction_coefs"}),
    ],
)
def test_gates_say_where_they_come_from(model_type: str, held: dict[str, str]) -> None:
    gates = _blocks(model_type)[1].anatomy.gates
    assert {name: gates[name].path for name in held} == held


def test_a_shared_part_of_the_forward_is_one_point_of_the_stream() -> None:
    """Gemma 3n's attention and its low-rank path read the same lane; its MLP reads what both were added to."""
    anatomy = _blocks("gemma3n_text")[0].anatomy
    laurel, attention, mlp, _ = anatomy.terms
    assert laurel.reads is attention.reads
    assert mlp.reads is not attention.reads
