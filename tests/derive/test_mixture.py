"""Mixtures of experts: their values are found in every kind of family, edits take effect, wrong places are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch

from probe.checkpoints import Loaded, factory, load, targets
from probe.derive.declare import HostDraft
from probe.derive.draft import draft
from probe.measure.checks import mixture
from probe.measure.checks.mlp import checks as mlp_checks
from probe.measure.edits import changed, edit_all
from probe.measure.identities import Identity, evaluate
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer, trace

VALUES = ("router_logits", "expert_weights", "expert_indices", "expert_outputs", "routed_output")
CHECKS = ("router", "expert choice", "expert weights", "experts", "routed sum", "mixture")


class Case(NamedTuple):
    """A family's mixture.

    Attributes:
        shared: whether a shared expert stands beside the routed ones.
        single: whether a token goes to one expert only.
        without: the values that stand nowhere, and a part of the reason.
        unchecked: the checks that then have nothing to check.
        host: standard name of the mixture.
        overrides: config values that the twin differs in.
    """

    family: str
    kind: str
    twin: str = "tiny"
    shared: bool = False
    single: bool = False
    without: dict[str, str] = {}
    unchecked: tuple[str, ...] = ()
    host: str = "mlp"
    overrides: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.family}-{self.kind.replace(' ', '-')}"


LOOPED = {"expert_outputs": "one after the other"}
NO_SUM = ("routed sum",)
CASES = [
    Case("mixtral", "softmax over the chosen"),
    Case("gpt_oss", "router with a bias"),
    Case("jamba", "weights that sum to less than one"),
    Case("minimax", "mixture behind linear attention"),
    Case("deepseek_v3", "groups and a correction bias", shared=True),
    Case("deepseek_v4", "choice by token id", shared=True),
    Case("kolibri1", "bias on the logits", shared=True),
    Case("laguna", "routed part scaled", shared=True),
    Case("axk1", "norm inside the mixture", shared=True),
    Case("flex_olmo", "norm after the mixture"),
    Case("qwen2_moe", "gated shared expert", shared=True),
    Case("hunyuan_v1_moe", "router in a module of its own", shared=True),
    Case("inkling_text", "shared experts weighted by the router", shared=True),
    Case("granitemoeshared", "dense MLP beside", host="block_sparse_moe"),
    Case("phimoe", "one slot after the other"),
    Case("zaya", "router over blocks and a skip expert", single=True, unchecked=("router",)),
    Case("dbrx", "loop over experts", without=LOOPED, unchecked=NO_SUM),
    Case("longcat_flash", "zero experts", without=LOOPED, unchecked=NO_SUM),
    Case("jetmoe", "rows sorted by expert", without={"expert_outputs": "sorted by expert"}, unchecked=NO_SUM),
    Case("nemotron_h", "one sublayer a block", shared=True),
    Case(
        "nemotron_h",
        "narrow experts",
        shared=True,
        without={"expert_outputs": "width of 32"},
        unchecked=NO_SUM,
        overrides=(("moe_latent_size", 32),),
    ),
    Case(
        "doge",
        "pairs of keys",
        twin="tiny-moe",
        shared=True,
        without={"router_logits": "no number for each expert", "expert_outputs": "inside one product"},
        unchecked=("router", "expert choice", "routed sum"),
    ),
]

every = pytest.mark.parametrize("case", CASES, ids=str)


@cache
def _run(index: int) -> Run:
    case = CASES[index]
    target = next(target for target in targets(case.family) if target.id == case.twin)
    loaded: Loaded = load(target, attn="eager")
    if case.overrides:
        module = factory.build_default(case.family, case.twin, overrides=dict(case.overrides))
        loaded = replace(loaded, module=module, config=module.config)
    return measure(StandardizedTransformer(loaded))


def run_of(case: Case) -> Run:
    return _run(CASES.index(case))


def blocks_of(case: Case, run: Run) -> list[int]:
    """The blocks that have the mixture."""
    return [
        index
        for index, contributions in enumerate(run.text.contributions)
        if any(c.host == case.host and c.term.kind == "moe" for c in contributions)
    ]


def identities(run: Run) -> list[Identity]:
    """The mixture's checks, and that of the shared expert's output."""
    shared = [check for check in mlp_checks(run.text) if check.name.startswith("shared expert")]
    return evaluate(run, run.text, [*mixture.checks(run.text), *shared])


@every
def test_every_value_is_read_or_has_a_reason(case: Case) -> None:
    run = run_of(case)
    blocks = blocks_of(case, run)
    assert blocks
    names = (*VALUES, "shared_expert_output") if case.shared else VALUES
    for index in blocks:
        host: Any = getattr(run.model.layers[index], case.host)
        support = host.support()
        for name in names:
            part = case.without.get(name)
            if part is None:
                assert support[name] is None
                assert run.text.get(index, case.host, name) is not None
            else:
                assert part in support[name] and support[name].endswith(".")
        if not case.shared:
            assert "shared_expert_output" not in support


@every
def test_shapes_and_sizes(case: Case) -> None:
    run = run_of(case)
    for index in blocks_of(case, run):
        host: Any = getattr(run.model.layers[index], case.host)
        size = run.text.get(index, "", "layer_input").shape[:2]
        indices = run.text.get(index, case.host, "expert_indices")
        assert indices.shape == (*size, host.top_k)
        assert int(indices.max()) < host.num_experts
        assert all(len(set(row.tolist())) == host.top_k for row in indices.flatten(0, 1))
        weights = run.text.get(index, case.host, "expert_weights")
        assert weights.shape == indices.shape
        logits = run.text.get(index, case.host, "router_logits")
        assert logits is None or logits.shape[-1] >= host.num_experts
        outputs = run.text.get(index, case.host, "expert_outputs")
        assert outputs is None or outputs.shape == (*indices.shape, run.model.hidden_size)


@every
def test_identities_hold_on_every_block(case: Case) -> None:
    run = run_of(case)
    found = [i for i in evaluate(run, run.text, mixture.checks(run.text)) if i.blocks]
    suffix = "" if case.host == "mlp" else f" in {case.host}"
    for name in CHECKS:
        holding = [i for i in found if i.name == f"{name}{suffix}"]
        covered = sorted(block for identity in holding for block in identity.blocks)
        assert covered == ([] if name in case.unchecked else blocks_of(case, run)), name
        assert all(identity.holds for identity in holding), holding


@every
def test_an_edit_reaches_the_logits(case: Case) -> None:
    """Each edit alone, in a forward of its own: some mixtures mix the rows of a batch."""
    run = run_of(case)
    index = blocks_of(case, run)[0]
    host: Any = getattr(run.model.layers[index], case.host)
    reference = _logits(run, None)
    for name in (*VALUES, *(("shared_expert_output",) if case.shared else ())):
        if name in case.without:
            continue
        moved = _logits(run, lambda name=name: _edit(host, name))
        assert float((moved - reference).abs().max()) > 1e-4 * float(reference.abs().max()), name


def test_edits_are_measured_one_by_one_where_a_batch_mixes_its_rows() -> None:
    """Doge's router halves the flat tokens, so a row's routing depends on the other rows."""
    case = next(case for case in CASES if case.family == "doge")
    effects = edit_all(run_of(case))
    assert {effect.reaches for effect in effects.values()} == {True}
    assert all(effect.noise == 0 for effect in effects.values())


def test_blocks_agree_on_one_form() -> None:
    """On a block where no choice turns on the bias, the form without a softmax holds as well."""
    case = next(case for case in CASES if case.family == "zaya")
    run = run_of(case)
    for name in ("expert choice", "expert weights"):
        (only,) = [i for i in evaluate(run, run.text, mixture.checks(run.text)) if i.name == name]
        assert only.blocks == blocks_of(case, run)


def _edit(host: Any, name: str) -> None:
    value = getattr(host, name)
    setattr(host, name, changed(value, name, host))


def _logits(run: Run, worker: Callable[[], None] | None) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    keep = lambda: seen.append(run.model.logits.detach().clone())  # noqa: E731
    trace.run(run.model, run.inputs, [*([worker] if worker is not None else []), keep])
    return seen[0]


def _slots_turned(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    return {"expert_indices": run.text.get(index, case.host, "expert_indices").roll(1, -1)}


def _next_expert(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    host: Any = getattr(run.model.layers[index], case.host)
    return {"expert_indices": (run.text.get(index, case.host, "expert_indices") + 1) % host.num_experts}


def _rescaled_by_token(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    """Weights that sum to another number for every token, as before they are normalised."""
    weights = run.text.get(index, case.host, "expert_weights")
    return {"expert_weights": weights * torch.linspace(0.5, 2, weights.shape[1])[None, :, None]}


def _doubled(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    return {"expert_weights": 2 * run.text.get(index, case.host, "expert_weights")}


def _outputs_of_other_slots(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    return {"expert_outputs": run.text.get(index, case.host, "expert_outputs").roll(1, 2)}


def _parts_swapped(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    routed = run.text.get(index, case.host, "routed_output")
    return {"routed_output": run.text.get(index, case.host, "shared_expert_output"), "shared_expert_output": routed}


def _another_tokens_logits(run: Run, case: Case, index: int) -> dict[str, torch.Tensor]:
    return {"router_logits": run.text.get(index, case.host, "router_logits").roll(1, 1)}


MUTATIONS = (
    _slots_turned,
    _next_expert,
    _rescaled_by_token,
    _doubled,
    _outputs_of_other_slots,
    _parts_swapped,
    _another_tokens_logits,
)


def _applies(case: Case, mutation: Callable[..., dict[str, torch.Tensor]]) -> bool:
    """Whether the mixture has the values that a mutation changes, and another value to put there."""
    if mutation in (_slots_turned, _outputs_of_other_slots) and case.single:
        return False
    needed = {_outputs_of_other_slots: "expert_outputs", _another_tokens_logits: "router_logits"}
    return needed.get(mutation) not in case.without and (case.shared or mutation is not _parts_swapped)


@pytest.mark.parametrize(
    ("case", "mutation"),
    [(case, mutation) for case in CASES for mutation in MUTATIONS if _applies(case, mutation)],
    ids=lambda item: str(item) if isinstance(item, Case) else item.__name__.lstrip("_"),
)
def test_a_wrong_value_breaks_an_identity(case: Case, mutation: Callable[..., dict[str, torch.Tensor]]) -> None:
    run = run_of(case)
    index = blocks_of(case, run)[-1]
    assert all(identity.holds for identity in identities(run))
    label = run.text.host(case.host)
    wrong = {trace.Key(label, index, name): value for name, value in mutation(run, case, index).items()}
    kept = {key: run.readings[key] for key in wrong}
    run.readings.update(wrong)
    try:
        assert not all(identity.holds for identity in identities(run))
    finally:
        run.readings.update(kept)


@pytest.mark.parametrize(
    ("family", "twin"),
    [
        *((name, "tiny") for name in ("qwen2_moe", "axk1", "laguna", "deepseek_v3", "jetmoe", "dbrx")),
        ("doge", "tiny-moe"),
    ],
)
def test_half_precision_changes_no_location(family: str, twin: str) -> None:
    """Sums that round to three digits are still told apart."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        module = factory.build_default(family, twin).to(dtype)
        hosts = [host for block in draft(module, factory.default_inputs(module)).blocks for host in block.hosts]
        moe = [host for host in hosts if host.role == "moe"]
        assert moe
        found.append([{name: value.at for name, value in host.values.items()} for host in moe])
    assert found[0] == found[1]


def _derived(family: str, twin: str) -> HostDraft:
    target = next(target for target in targets(family) if target.id == twin)
    module = load(target, attn="eager").module
    return next(h for h in draft(module, factory.default_inputs(module)).blocks[0].hosts if h.role == "moe")


def test_a_declared_mixture_whose_experts_run_on_every_token() -> None:
    """Where Llama 4's module reads its values the run finds them, and why it has no weights and no slots' outputs."""
    from families.llama4_text import Moe

    host = _derived("llama4_text", "tiny")
    for name, value in Moe.standard_values().items():
        if name in ("expert_weights", "expert_outputs"):
            assert host.values[name].at is None
            assert "belongs to a slot" in (host.values[name].reason or "")
        elif name in (*VALUES, "shared_expert_output"):
            found = host.values[name].at or ""
            assert found.replace("shared_expert.", "shared_experts.") == str(value.location)


def test_a_declared_mixture_whose_router_stands_in_the_block() -> None:
    """Gemma 4 norms the dense MLP and the experts each on its own before it adds them."""
    from families.gemma4_text import Moe

    host = _derived("gemma4_text", "tiny-moe")
    for name, value in Moe.standard_values().items():
        if name in (*VALUES, "shared_expert_output"):
            assert host.values[name].at == str(value.location)
