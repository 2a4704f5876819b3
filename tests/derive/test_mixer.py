"""Recurrent mixers: their values are found in every kind, and edits of them take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from nnsight.intervention.interleaver import OutOfOrderError as OutOfOrder

from probe.derive.kernels import KINDS
from probe.measure.edits import changed
from probe.measure.run import Run
from probe.measure.shapes import shapes
from probe.recurrences import RECURRENCES
from probe.standard import trace
from probe.values.observed import ObservedValue as Observed
from probe.values.value import UnavailableValue
from tests.derive.mixers import CASES, OBSERVED, ONE_BY_ONE, Case, blocks_of, identities, run_of

every = pytest.mark.parametrize("case", CASES, ids=str)


@every
def test_every_value_is_read_or_has_a_reason(case: Case) -> None:
    run = run_of(case.family)
    assert blocks_of(case)
    for index in blocks_of(case):
        host: Any = getattr(run.model.layers[index], case.host)
        support = host.support()
        assert set(support) == {*case.served, *case.without}
        for name in case.served:
            assert support[name] is None
            value = run.text.get(index, case.host, name)
            assert value is not None
            assert value.ndim == len(host.standard_values()[name].layout.dims), name
            assert value.shape[0] == 1
        for name, part in case.without.items():
            assert part in support[name] and support[name].endswith(".")


LABELS = {
    "falcon_h1": "hybrid",
    "lfm2": "conv",
    "lfm3": "conv",
    "minimax": "linear attention",
    "recurrent_gemma": "linear recurrent unit",
    "rwkv": "weighted average",
    "xlstm": "matrix memory",
    **dict.fromkeys(("qwen3_next", "olmo_hybrid", "kimi_linear"), "delta rule"),
    **dict.fromkeys(("mamba", "mamba2", "jamba", "zamba", "zamba2"), "state-space scan"),
}
"""What the first block with a mixer is called: by the recurrence that ran, if one did and nothing stands beside it."""


@every
def test_a_block_is_called_by_the_recurrence_that_ran(case: Case) -> None:
    run = run_of(case.family)
    found, of = shapes(run, run.text, run.model.layer_types)
    assert found[of[blocks_of(case)[0]]].label.split(" · ")[0] == LABELS[case.family]


def test_what_a_recurrence_is_called_is_told_of_each_kind() -> None:
    assert RECURRENCES.keys() == KINDS.keys()


@every
def test_values_stand_in_the_order_of_the_forward(case: Case) -> None:
    """A worker that asks for all of them in that order is served; one that begins with the last is not."""
    run = run_of(case.family)
    host: Any = getattr(run.model.layers[blocks_of(case)[0]], case.host)
    values = host.standard_values()
    names = [name for name in values if host.refusal(values[name]) is None and not isinstance(values[name], Observed)]
    assert names[-2:] == ["attention_premix", "attention_output"] and len(names) > 4
    read: list[str] = []

    def ask(wanted: list[str]) -> None:
        for name in wanted:
            getattr(host, name)
            read.append(name)

    trace.run(run.model, run.inputs, [lambda: ask(names)])
    assert read == names
    with pytest.raises(OutOfOrder):
        trace.run(run.model, run.inputs, [lambda: ask([names[-1], names[0]])])


@every
def test_identities_hold_on_every_block_and_look_at_every_value(case: Case) -> None:
    run = run_of(case.family)
    found = identities(case)
    assert [identity for identity in found if not identity.holds] == []
    wanted = {"output projection", "gate"}
    if "conv_output" in case.served:
        wanted |= {"convolution", "around the convolution"}
    if "recurrence_output" in [*case.served, *case.without]:
        wanted |= {"recurrence", "state after the last token"}
    if "mixer_step_size" in case.served:
        wanted |= {"step size"}
    if "token_states" in case.served:
        wanted |= {"states of the tokens"}
    for name in wanted:
        covered = sorted(b for i in found if i.name == f"{name} of the mixer" for b in i.blocks or ())
        assert covered == blocks_of(case), name
    looked_at = {name for host, name in run.text.used if host == run.text.host(case.host)}
    assert set(case.served) - looked_at == set()


@every
def test_an_edit_reaches_the_logits_or_is_refused(case: Case) -> None:
    """Each edit in a row of its own, on the first block with the mixer."""
    run = run_of(case.family)
    index = blocks_of(case)[0]
    host: Any = getattr(run.model.layers[index], case.host)
    values = host.standard_values()
    writable = [name for name in case.served if values[name].writable]
    assert set(case.served) - set(writable) == (set(case.served) & OBSERVED - _unlooped(case)) | (
        ONE_BY_ONE if case.family == "zamba" else set()
    )
    reference = _logits(run, None)
    for name in writable:
        moved = _logits(run, lambda name=name: _edit(host, name)) - reference
        assert float(moved.abs().max()) > 1e-4 * float(reference.abs().max()), name
    for name in set(case.served) - set(writable):
        with pytest.raises(UnavailableValue, match="read-only"):
            setattr(host, name, torch.zeros(1))


def _unlooped(case: Case) -> set[str]:
    """A linear recurrent unit's output is its state."""
    return {"token_states"} if case.family == "recurrent_gemma" else set()


def _edit(host: Any, name: str) -> None:
    value = getattr(host, name)
    setattr(host, name, changed(value, name, host))


def _logits(run: Run, worker: Callable[[], None] | None) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    keep = lambda: seen.append(run.model.logits.detach().clone())  # noqa: E731
    trace.run(run.model, run.inputs, [*([worker] if worker is not None else []), keep])
    return seen[0]
