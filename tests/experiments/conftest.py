"""Runs of twins, of twins with other config values, and of twins changed by hand; and the verdict of one experiment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from probe.experiments import QUIRKS, Verdict
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer
from probe.standard.inputs import prepare
from probe.standard.stack import Stack
from probe.standard.trace import read_all
from probe.wiring.anatomy import derive
from tests.experiments.pairs.build import Twin, model_of

Change = Callable[[Any], None]


def loaded(family: str, twin: str, overrides: dict[str, Any], change: Change | None) -> StandardizedTransformer:
    """A twin with config values changed, and then its native model changed, on the standard layer."""
    return model_of(Twin(family, twin, overrides, change))


@cache
def _measured(family: str, twin: str, overrides: tuple[tuple[str, Any], ...]) -> Run:
    return measure(loaded(family, twin, {key: list(v) if isinstance(v, tuple) else v for key, v in overrides}, None))


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Run]:
    """A run by family and twin; config values as keywords, `change` to change the native model first."""

    def run(family: str, twin: str = "tiny", change: Change | None = None, **overrides: Any) -> Run:
        if change is not None:
            return measure(loaded(family, twin, overrides, change))
        return _measured(
            family, twin, tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in overrides.items()))
        )

    return run


@pytest.fixture(scope="session")
def underived() -> Callable[..., Run]:
    """A run without derived wiring, for models whose blocks are no sums over their submodules."""

    def run(family: str, change: Change) -> Run:
        model = loaded(family, "tiny", {}, change)
        text, inputs = prepare(model)
        readings = read_all(model, inputs)
        return Run(model, text, inputs, readings, Stack("model.layers[i]", list(model.layers), [], readings), None)

    return run


@pytest.fixture(scope="session")
def wired() -> Callable[..., Run]:
    """A run with nothing but derived wiring, for models whose blocks leave modules out."""

    def run(family: str, change: Change) -> Run:
        model = loaded(family, "tiny", {}, change)
        text, inputs = prepare(model)
        model._module.set_attn_implementation("eager")
        envoys = list(model.layers)
        anatomy = derive([envoy._module for envoy in envoys], lambda: model._module(**inputs))
        return Run(model, text, inputs, {}, Stack("model.layers[i]", envoys, anatomy, {}), None)

    return run


@pytest.fixture(scope="session")
def decide() -> Callable[[str, Run], Verdict]:
    """The verdict of one experiment about the text model; it must be one a record can hold."""

    def verdict(slug: str, run: Run) -> Verdict:
        quirk = next(quirk for quirk in QUIRKS if quirk.slug == slug and quirk.about == "text")
        found = quirk.run(run)
        quirk.record(found, len(run.text))
        return found

    return verdict
