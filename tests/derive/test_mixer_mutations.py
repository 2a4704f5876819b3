"""Wrong values of a mixer, and places taken for one another, are noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from probe import registry
from probe.checkpoints import factory, load, targets
from probe.derive.draft import draft
from probe.derive.family import default_family
from probe.measure.checks import mixer
from probe.measure.identities import evaluate
from probe.measure.run import measure
from probe.standard import StandardizedTransformer, trace
from tests.derive.mixers import CASES, Case, blocks_of, identities, run_of

Wrong = dict[str, torch.Tensor]


def _swapped(one: str, other: str) -> Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], Wrong]:
    def mutation(here: dict[str, torch.Tensor], _: dict[str, torch.Tensor]) -> Wrong:
        return {one: here[other], other: here[one]}

    mutation.__name__ = f"{one} and {other} swapped"
    mutation.__dict__["needs"] = (one, other)
    return mutation


def _dropped(name: str) -> Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], Wrong]:
    def mutation(here: dict[str, torch.Tensor], _: dict[str, torch.Tensor]) -> Wrong:
        return {name: torch.zeros_like(here[name])}

    mutation.__name__ = f"{name} dropped"
    mutation.__dict__["needs"] = (name,)
    return mutation


def _elsewhere(name: str) -> Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], Wrong]:
    def mutation(_: dict[str, torch.Tensor], there: dict[str, torch.Tensor]) -> Wrong:
        return {name: there[name]}

    mutation.__name__ = f"{name} of another block"
    mutation.__dict__["needs"] = (name,)
    return mutation


def _later(name: str) -> Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], Wrong]:
    def mutation(here: dict[str, torch.Tensor], _: dict[str, torch.Tensor]) -> Wrong:
        return {name: here[name].roll(1, 1)}

    mutation.__name__ = f"{name} of the token before"
    mutation.__dict__["needs"] = (name,)
    return mutation


MUTATIONS = [
    _swapped("mixer_b", "mixer_c"),
    _swapped("attention_queries", "attention_keys"),
    _swapped("mixer_input_gate", "mixer_forget_gate"),
    _dropped("mixer_decay"),
    _dropped("mixer_beta"),
    _elsewhere("state_out"),
    _elsewhere("normalizer_out"),
    _elsewhere("mixer_gate"),
    _elsewhere("recurrence_output"),
    _later("conv_output"),
    _later("conv_input"),
    _later("mixer_dt"),
    _later("mixer_x"),
    _later("token_states"),
    _later("attention_premix"),
    _later("mixer_step_size"),
]


@pytest.mark.parametrize(
    ("case", "mutation"),
    [(c, m) for c in CASES for m in MUTATIONS if set(m.__dict__["needs"]) <= set(c.served)],
    ids=lambda item: str(item) if isinstance(item, Case) else item.__name__.replace(" ", "-"),
)
def test_a_wrong_value_breaks_an_identity(case: Case, mutation: Callable[..., Wrong]) -> None:
    run = run_of(case.family)
    index, other = blocks_of(case)[-1], blocks_of(case)[0]
    here, there = ({n: run.text.get(b, case.host, n) for n in case.served} for b in (index, other))
    wrong = {trace.Key(run.text.host(case.host), index, n): value for n, value in mutation(here, there).items()}
    kept = {key: run.readings[key] for key in wrong}
    run.readings.update(wrong)
    try:
        assert [identity for identity in identities(case) if not identity.holds] != []
    finally:
        run.readings.update(kept)


@pytest.mark.parametrize(
    ("family", "one", "other"),
    [
        ("mamba", "mixer_b", "mixer_c"),
        ("mamba2", "mixer_b", "mixer_c"),
        ("zamba", "mixer_b", "mixer_c"),
        ("qwen3_next", "attention_queries", "attention_keys"),
        ("kimi_linear", "attention_queries", "attention_keys"),
        ("minimax", "attention_keys", "attention_values"),
        ("rwkv", "attention_keys", "attention_values"),
        ("rwkv", "state_out", "normalizer_out"),
        ("lfm2", "conv_input", "conv_output"),
        ("recurrent_gemma", "mixer_gate", "mixer_input_gate"),
        ("xlstm", "mixer_input_gate", "mixer_forget_gate"),
    ],
)
def test_swapped_places_break_an_identity(family: str, one: str, other: str) -> None:
    """The same on the way there: a derivation that takes one place for the other is noticed."""
    target = next(target for target in targets(family) if target.kind == "tiny")
    checkpoint = load(target, attn="eager")
    found = draft(checkpoint.module, factory.default_inputs(checkpoint.module))
    for host in (host for block in found.blocks for host in block.hosts if host.role == "mixer"):
        host.values[one], host.values[other] = host.values[other], host.values[one]
    known = registry.get(family)
    swapped = default_family(known.name, known.title, known.checkpoints, checkpoint.module, found)
    run = measure(StandardizedTransformer(checkpoint, family=swapped))
    assert not all(identity.holds for identity in evaluate(run, run.text, mixer.checks(run.text)))
