"""Pairs of twins that differ in one property, and mutants: twins whose config and class names say what is not so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import torch
from torch import nn

from probe import registry
from probe.checkpoints import Loaded, digest, factory, images, twins
from probe.experiments import QUIRKS, Quirk, Verdict
from probe.measure.run import Run, measure
from probe.record import findings
from probe.standard import StandardizedTransformer

Mutate = Callable[[Any], None]
Naive = Callable[[Any], bool]
About = Literal["text", "vision"]
Answer = Literal["yes", "no", "n/a"]


@dataclass(frozen=True)
class Twin:
    """A tiny twin, as it is or changed.

    Attributes:
        family, name: the twin.
        config: config values to change, dotted below the root; the class is then built with them.
        mutate: changes the built model in place: its modules, weights or forwards.
        process: changes the processor that makes the model's inputs from images.
    """

    family: str
    name: str = "tiny"
    config: Mapping[str, Any] = field(default_factory=dict)
    mutate: Mutate | None = None
    process: Mutate | None = None

    def __hash__(self) -> int:
        return hash((self.family, self.name, repr(sorted(self.config.items())), self.mutate, self.process))

    @property
    def mutated(self) -> bool:
        """Whether anything but config values was changed."""
        return self.mutate is not None or self.process is not None


@dataclass(frozen=True)
class Mutant:
    """A twin on which a check of the config or of class names answers wrongly.

    Attributes:
        twin: the twin, with its `mutate`.
        naive: such a check, on the native model. It must be right on those twins of the pair that nothing mutates.
        answer: what is so, and what the experiment must say.
        why: what makes the check wrong.
        blocks: where it holds; None where that is not compared.
        measured: numbers that the experiment must give.
    """

    twin: Twin
    naive: Naive
    answer: Answer
    why: str
    blocks: list[int] | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """Two twins that differ in one property, and mutants of one of them.

    Attributes:
        slug, about: the quirk.
        yes, no: the twin that has it, and the one that has not.
        mutants: at least one.
    """

    slug: str
    yes: Twin
    no: Twin
    mutants: tuple[Mutant, ...]
    about: About = "text"

    def __str__(self) -> str:
        return self.slug if self.about == "text" else f"vision-{self.slug}"


def model_of(twin: Twin) -> StandardizedTransformer:
    """A twin on the standard layer; one that nothing changes is shared with every other test."""
    plain = findings.twin(twin.family, twin.name)
    return StandardizedTransformer(_changed(plain.loaded, twin)) if twin.config or twin.mutated else plain


def _changed(loaded: Loaded, twin: Twin) -> Loaded:
    """What was loaded of a twin, with its model built anew and changed."""
    declared = registry.get(twin.family).declares_twins
    make = twins.build if declared else factory.build_default
    module: Any = make(twin.family, twin.name, overrides=twin.config)
    if twin.mutate is not None:
        with torch.no_grad():
            twin.mutate(module)
        module.eval().requires_grad_(False)
    processor = loaded.processor
    if processor is not None and (twin.config or twin.process):
        processor = images.processor(module.config, twins.spec(twin.family, twin.name).get("image", {}))
        if twin.process is not None:
            twin.process(processor)
    return replace(
        loaded,
        module=module,
        config=module.config,
        processor=processor,
        digest=digest.of_weights(module),
        parameters=digest.parameters(module),
    )


@cache
def run_of(twin: Twin) -> Run:
    """The run of a twin, measured once a process."""
    return measure(model_of(twin))


def native(twin: Twin) -> nn.Module:
    """The native model of a twin's run: what a naive check looks at."""
    module: nn.Module = run_of(twin).model._module
    return module


def quirk(slug: str, about: About) -> Quirk:
    return next(quirk for quirk in QUIRKS if (quirk.slug, quirk.about) == (slug, about))


def decide(pair: Pair, twin: Twin) -> Verdict:
    """The verdict of a pair's experiment on a twin; it must be one a record can hold."""
    run, asked = run_of(twin), quirk(pair.slug, pair.about)
    found = asked.run(run)
    stack = run.text if pair.about == "text" else run.vision
    assert stack is not None
    said = asked.record(found, len(stack)).statement
    assert found.verdict != "yes" or (said and said.endswith(".") and "None" not in said)
    return found
