"""The words and the path of a record's vision part, from a run, or from a config with a run behind it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProbeError
from ..schema import PathNode
from ..standard import StandardizedTransformer
from . import tower_words as words
from .run import Run
from .tower_configs import derive_for
from .tower_numbers import Numbers, measure
from .tower_runs import TowerRuns


@dataclass(frozen=True)
class TowerFacts:
    """What the record says of a tower beyond its blocks; ``numbers`` are what the words were made from."""

    path: list[PathNode]
    rows: str
    positions: str
    masking: str
    final_norm: str
    numbers: Numbers
    checkpoint: str


def describe(run: Run) -> TowerFacts:
    """The tower of a run, measured.

    Raises:
        ProbeError: the run has no tower.
    """
    if run.vision is None:
        raise ProbeError(f"{run.model.loaded.target.id} has no vision encoder to describe.")
    return _told(measure(TowerRuns.of(run)), run.model.loaded.target.id)


def describe_config(model: StandardizedTransformer, twin: TowerFacts) -> TowerFacts:
    """The tower of a config that was built and not run.

    Args:
        model: built from the config, on meta.
        twin: what a run of the same tower class showed. Its equations give this config's numbers where they hold on
            the run; the words say what only the run showed.
    """
    return _told(derive_for(twin.numbers, model, twin.checkpoint), model.loaded.target.id)


def _told(numbers: Numbers, checkpoint: str) -> TowerFacts:
    return TowerFacts(
        words.path(numbers),
        words.rows(numbers),
        words.positions(numbers),
        words.masking(numbers),
        words.final_norm(numbers),
        numbers,
        checkpoint,
    )
