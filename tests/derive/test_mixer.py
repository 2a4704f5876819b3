"""Recurrent mixers: their values are found in every kind, edits take effect, wrong values and places are noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from nnsight.intervention.interleaver import OutOfOrderError as OutOfOrder

from probe import registry
from probe.checkpoints import factory, load, targets
from probe.derive.draft import draft
from probe.derive.family import default_family
from probe.measure import trace
from probe.measure.checks import mixer
from probe.measure.checks import recurrences as plain
from probe.measure.edits import changed
from probe.measure.identities import Identity, evaluate
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer
from probe.standard.observed import ObservedValue as Observed
from probe.standard.value import UnavailableValue

DELTA = "attention_queries attention_keys attention_values mixer_decay mixer_beta recurrence_output state_in state_out"
SCAN = "mixer_x mixer_b mixer_c mixer_dt mixer_step_size recurrence_output state_in state_out"
CONVOLUTION = "conv_input conv_output"
ENDS = "mixer_gate attention_premix attention_output"
OBSERVED = {"state_out", "normalizer_out", "stabilizer_out", "token_states"}
"""Values that are read only; of a scan for each head, those that stand for one head at a time, too."""

ONE_BY_ONE = {"mixer_b", "mixer_c", "mixer_dt", "mixer_step_size", "recurrence_output"}


class Case(NamedTuple):
    """A family's mixer.

    Attributes:
        values: those that are served beside the ends.
        without: those that stand nowhere, and a part of the reason.
        host: its standard name.
    """

    family: str
    kind: str
    values: str
    without: dict[str, str] = {}
    host: str = "linear_attn"

    def __str__(self) -> str:
        return f"{self.family}-{self.kind.replace(' ', '-')}"

    @property
    def served(self) -> list[str]:
        return [*self.values.split(), *ENDS.split()]


CHUNKS = {"token_states": "a chunk of tokens at once"}
CASES = [
    Case("qwen3_next", "gated delta rule", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("olmo_hybrid", "gated delta rule with negative eigenvalues", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("kimi_linear", "delta rule with a decay a channel", f"{CONVOLUTION} {DELTA}", CHUNKS),
    Case("mamba", "selective scan", f"{CONVOLUTION} {SCAN} token_states"),
    Case("jamba", "selective scan beside attention", f"{CONVOLUTION} {SCAN} token_states"),
    Case(
        "zamba",
        "selective scan for each head",
        f"{CONVOLUTION} {SCAN.replace('state_in ', '')} token_states",
        {"state_in": "once for each of 2 heads"},
    ),
    Case("mamba2", "state space dual", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case("falcon_h1", "state space dual without a norm", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case("zamba2", "state space dual in a block of its own", f"{CONVOLUTION} {SCAN} mixer_decay", CHUNKS),
    Case(
        "minimax",
        "lightning attention",
        "attention_queries attention_keys attention_values recurrence_output state_in state_out",
        {"mixer_decay": "a buffer", "token_states": "a block of tokens at once"},
    ),
    Case("lfm2", "short convolution", f"{CONVOLUTION} mixer_input_gate mixer_x"),
    Case("lfm3", "short convolution before a norm", f"{CONVOLUTION} mixer_input_gate mixer_x"),
    Case(
        "recurrent_gemma",
        "linear recurrent unit",
        f"{CONVOLUTION} mixer_x mixer_decay mixer_input_gate recurrence_output state_out token_states",
        {"state_in": "resets its state"},
    ),
    Case(
        "rwkv",
        "weighted average",
        "attention_keys attention_values recurrence_output state_out normalizer_out stabilizer_out token_states",
        {"state_in": "reads nothing of it"},
    ),
    Case(
        "xlstm",
        "matrix memory",
        "attention_queries attention_keys attention_values mixer_input_gate mixer_forget_gate recurrence_output "
        "state_out normalizer_out stabilizer_out",
        {"state_in": "not opened", "token_states": "chunks of tokens"},
    ),
]

every = pytest.mark.parametrize("case", CASES, ids=str)


@cache
def loaded(family: str) -> StandardizedTransformer:
    target = next(target for target in targets(family) if target.kind == "tiny")
    return StandardizedTransformer(load(target, attn="eager"))


@cache
def run_of(family: str) -> Run:
    return measure(loaded(family))


def blocks_of(case: Case) -> list[int]:
    run = run_of(case.family)
    return [
        index
        for index, contributions in enumerate(run.text.contributions)
        if any(c.host == case.host and c.term.kind == "mixer" for c in contributions)
    ]


def identities(case: Case) -> list[Identity]:
    """The mixer's checks, of what the readings of the run are now."""
    run = run_of(case.family)
    run.text.__dict__.pop("_recurrences", None)
    return [i for i in evaluate(run, run.text, mixer.checks(run.text)) if i.blocks]


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


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear", "mamba", "mamba2", "minimax", "rwkv", "xlstm"])
def test_states_after_many_tokens(family: str) -> None:
    """Longer than any function's chunk, so that its loop runs more than once."""
    model = loaded(family)
    run = measure(model, "The Eiffel Tower is in the city of Paris, and it is tall. " * 3)
    assert run.inputs["input_ids"].shape[1] > 128
    found = evaluate(run, run.text, mixer.checks(run.text))
    assert any(identity.name == "state after the last token of the mixer" for identity in found)
    assert [identity for identity in found if not identity.holds] == []


@pytest.mark.parametrize("family", ["qwen3_next", "mamba", "zamba", "mamba2", "lfm2", "recurrent_gemma", "minimax"])
def test_a_prefill_with_a_cache_reads_the_same(family: str) -> None:
    run = run_of(family)
    mixing = lambda key: key.host.endswith("linear_attn")  # noqa: E731
    readings = [trace.read_all(run.model, {**run.inputs, "use_cache": cached}, mixing) for cached in (False, True)]
    assert readings[0] and readings[0].keys() == readings[1].keys()
    for key, value in readings[0].items():
        assert torch.equal(value, readings[1][key]), key


@pytest.mark.parametrize("family", ["zamba", "mamba", "qwen3_next"])
def test_each_invoke_reads_its_own_rows(family: str) -> None:
    """Also where the rows stand on another axis than the first."""
    model = loaded(family)
    ids = run_of(family).inputs["input_ids"]
    index = next(block for block in range(len(model.layers)) if hasattr(model.layers[block], "linear_attn"))
    host: Any = model.layers[index].linear_attn
    names = [name for name in ("mixer_b", "attention_keys", "state_out", "token_states") if name in host.support()]
    names = [name for name in names if host.support()[name] is None]
    rows = [ids, ids.flip(1)]

    def read(groups: list[torch.Tensor], name: str) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        with torch.no_grad(), model.trace() as tracer:
            for group in groups:
                with tracer.invoke(input_ids=group, attention_mask=torch.ones_like(group)):
                    found.append(getattr(host, name).clone())
        return found

    for name in names:
        together = read(rows, name)
        for row, value in zip(rows, together, strict=True):
            (alone,) = read([row], name)
            assert value.shape == alone.shape and value.shape[0] == 1
            assert torch.allclose(value, alone, atol=1e-5), name


@pytest.mark.parametrize("family", ["bamba", "jamba", "lfm2", "mamba", "minimax", "qwen3_next", "rwkv", "zamba"])
def test_half_precision_changes_no_location(family: str) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        module = factory.build_default(family, "tiny").to(dtype)
        hosts = [host for block in draft(module, factory.default_inputs(module)).blocks for host in block.hosts]
        mixers = [host for host in hosts if host.role == "mixer"]
        assert mixers
        found.append([{name: (value.at, value.axes) for name, value in host.values.items()} for host in mixers])
    assert found[0] == found[1]


def test_where_an_observed_value_is_read_in_words() -> None:
    values = loaded("mamba").layers[0].linear_attn.standard_values()
    assert values["token_states"].words.endswith("inside mamba_selective_scan_0, once a token")
    assert values["state_out"].words.endswith(", the last time")
    values = loaded("zamba").layers[0].linear_attn.standard_values()
    assert values["token_states"].words.endswith(", once a token, for each head")


def test_a_state_is_carried_on() -> None:
    """The second half of a sequence, started from the state after the first, reads and ends as the whole does."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    q, k, v, g, b = draw(1, 2, 8, 4), draw(1, 2, 8, 4), draw(1, 2, 8, 3), -draw(1, 8, 2).abs(), draw(1, 8, 2).sigmoid()
    whole, states = plain.delta(q, k, v, g, b, None, normed=True)
    parts = [t[:, :, 4:] for t in (q, k, v)] + [t[:, 4:] for t in (g, b)]
    rest, more = plain.delta(*parts, states[:, 3], normed=True)
    assert torch.allclose(whole[:, 4:], rest, atol=1e-5) and torch.allclose(states[:, -1], more[:, -1], atol=1e-5)
    x, b, c, step = draw(1, 8, 2, 3), draw(1, 8, 1, 4), draw(1, 8, 1, 4), draw(1, 8, 2).abs()
    decay = -step[..., None, None]
    whole, states = plain.scan(x, b, c, step, decay, None)
    rest, more = plain.scan(*(t[:, 4:] for t in (x, b, c, step, decay)), states[:, 3])
    assert torch.allclose(whole[:, 4:], rest, atol=1e-5) and torch.allclose(states[:, -1], more[:, -1], atol=1e-5)


def _fused(query: Any, key: Any, value: Any, g: Any, beta: Any, **options: Any) -> Any:
    """Another package's kernel, as far as the model can tell."""
    result, states = plain.delta(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), g, beta, None, normed=True
    )
    return result, states[:, -1] if options["output_final_state"] else None


def test_a_fused_kernel_is_told_from_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next

    module = factory.build_default("qwen3_next", "tiny")
    inputs = factory.default_inputs(module)
    first = lambda: draft(module, inputs).blocks[0].hosts[1].values  # noqa: E731
    usual = first()
    assert "as plain PyTorch" in usual["recurrence_output"].description
    monkeypatch.setattr(modeling_qwen3_next, "torch_chunk_gated_delta_rule", _fused)
    fused = first()
    assert "_fused ran, as a fused kernel" in fused["recurrence_output"].description
    for name in ("attention_queries", "mixer_beta", "recurrence_output", "mixer_gate", "attention_premix"):
        assert fused[name].at is not None
    for name in ("state_in", "state_out", "token_states"):
        assert fused[name].at is None and "fused kernel" in (fused[name].reason or "")
