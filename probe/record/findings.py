"""Findings: everything the runs of one loaded checkpoint gave, before it becomes a record.

A tiny twin is built and measured once a process, since its findings also stand behind the published configs of its
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from .. import experiments, registry
from ..checkpoints import Target, load
from ..checkpoints.implementation import default_attention, implementation
from ..derive import twins
from ..errors import ProbeError
from ..experiments import pictures, some
from ..experiments.facts import facts
from ..measure import values
from ..measure.collect import all_identities
from ..measure.edits import edit_all
from ..measure.held import held_shapes
from ..measure.images import images
from ..measure.run import Run, measure
from ..measure.shapes import shapes
from ..schema import Experiment, Fact, Identity, Images, Picture, Shape
from ..standard import StandardizedTransformer
from ..standard.trace import Key, read_all
from .contradictions import contradictions
from .modules import Modules, examine

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Half:
    """What was found about one stack, the text model's or the tower's."""

    shapes: list[Shape]
    blocks: list[int]
    identities: list[Identity]
    experiments: list[Experiment]
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class Findings:
    """Everything the runs of one checkpoint gave; ``run`` is kept for what a published config must be compared with."""

    run: Run
    measured: values.Measured
    text: Half
    vision: Half | None
    facts: list[Fact]
    modules: Modules
    images: Images | None


def silent(step: str, share: float) -> None:
    del step, share


def find(model: StandardizedTransformer, attn: str | None, say: Progress) -> Findings:
    """Measure a loaded checkpoint.

    Args:
        model: the standardized model.
        attn: the attention implementation that counts as the default; None is what transformers would choose.
        say: told about the steps.

    Raises:
        ProbeError: what the family module declares contradicts the run, or an identity does not hold.
    """
    say("reading every value", 0.2)
    run = measure(model)
    held = held_shapes(run)
    if model.loaded.target.kind == "tiny" and not hasattr(model.family, "draft"):
        say("comparing with what is derived", 0.3)
        _refuse_contradicted(run)
    say("evaluating identities", 0.35)
    text_identities, vision_identities = all_identities(run)
    unusual: list[Identity] = []
    if hasattr(model.family, "draft"):
        text_identities, unusual = _usual(text_identities)
    elif unkept := getattr(model.family, "UNKEPT", ()):
        text_identities, unusual = _usual(text_identities, unkept)
    _refuse_broken(model, [*text_identities, *vision_identities])
    say("reading under the default attention", 0.45)
    reasons = _under(run, attn or default_attention(model._module))
    say("editing every value", 0.55)
    effects = edit_all(run)
    say("running the experiments", 0.7)
    text_experiments, vision_experiments = experiments.run_all(run)
    say("measuring facts", 0.9)
    drawn, undrawn = pictures.draw_all(run, text_experiments)
    text = Half(*shapes(run, run.text, model.layer_types), text_identities, text_experiments, drawn)
    vision = None
    if run.vision is not None:
        vision = Half(
            *shapes(run, run.vision, ["full_attention"] * len(run.vision)),
            vision_identities,
            vision_experiments,
            pictures.draw_tower(run),
        )
    measured = values.Measured(reasons, run.readings, effects, held=held)
    told = [*facts(run), *undrawn, *(_unkept(identity, len(run.text)) for identity in unusual)]
    return Findings(run, measured, text, vision, told, examine(run), images(run))


CORE = frozenset({"block sum", "call", "next token"})
"""Identities that no family may break."""


def _usual(found: Sequence[Identity], unkept: Collection[str] | None = None) -> tuple[list[Identity], list[Identity]]:
    """The identities of a family, apart from the usual equations that it does not keep.

    A family module declares where its values are, so a broken equation means that it is wrong, unless its ``UNKEPT``
    names it. Where the places themselves were derived (``unkept`` is None), it means that the family computes something
    else there, which its page says.
    """
    keeps = [
        identity
        for identity in found
        if identity.holds or identity.name in CORE or (unkept is not None and identity.name not in unkept)
    ]
    return keeps, [identity for identity in found if identity not in keeps]


def _refuse_contradicted(run: Run) -> None:
    """Compare what the family module declares with what its twin's run shows."""
    found = list(contradictions(run))
    if found:
        target = run.model.loaded.target
        raise ProbeError(
            f"{target.family}, {target.id}: {'; '.join(found)}. "
            f"Correct families/{target.family}.py, or the derivation.",
            status=3,
        )


def _unkept(identity: Identity, total: int) -> Fact:
    """An equation that most families keep and this one, of ``total`` blocks, does not."""
    where = "" if identity.broken is None else f" on {some(identity.broken, total)}"
    return Fact(
        name=f"unkept_{identity.name.replace(' ', '_')}",
        label=f"Not kept: {identity.name}",
        value=identity.max_abs_error,
        measured={} if identity.broken is None else {"blocks": [*identity.broken]},
        statement=f"The usual `{identity.expression}` does not hold: {identity.reason}{where}.",
    )


def _refuse_broken(model: StandardizedTransformer, found: Sequence[Identity]) -> None:
    broken = [identity for identity in found if not identity.holds]
    if broken:
        what = "; ".join(
            f"{identity.name} ({identity.expression}): {identity.reason}"
            + ("" if identity.broken is None else f" on blocks {', '.join(map(str, identity.broken))}")
            for identity in broken
        )
        raise ProbeError(
            f"{model.loaded.target.family}, {model.loaded.target.id}: {len(broken)} identities do not hold, "
            f"so no record is written. {what}.",
            status=3,
        )


def _under(run: Run, attn: str) -> dict[Key, str]:
    """What another attention implementation says of the values it does not give; the others are read for real."""
    reasons = values.refused_by_default(run.model) if attn == default_attention(run.model._module) else {}
    with implementation(run.model._module, attn):
        read = read_all(run.model, run.inputs)
    silent = [key for key in run.readings if key not in read and key not in reasons]
    if silent:
        raise ProbeError(f"Under {attn!r}, {silent[0].name} was neither read nor refused; correct its location.")
    return reasons


@lru_cache(maxsize=64)
def twin(family: str, name: str) -> StandardizedTransformer:
    """A tiny twin, built once a process."""
    if family in registry.modules():
        return StandardizedTransformer(load(Target(family, name, "tiny"), attn="eager"))
    built = twins.twin(family, name)
    return StandardizedTransformer(built.loaded, family=built.family)


_found: dict[tuple[str, str], Findings] = {}


def twin_findings(family: str, name: str, say: Progress = silent) -> Findings:
    """The findings on a tiny twin, measured once a process."""
    if (family, name) not in _found:
        _found[family, name] = find(twin(family, name), None, say)
    return _found[family, name]


def forget() -> None:
    """Build and measure twins anew from now on."""
    twin.cache_clear()
    twins.forget()
    _found.clear()
