"""From a family's twins to the source of a module for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..checkpoints import Target
from ..checkpoints.builds import load_twin
from ..derive.default import derived
from ..registry import Family
from ..standard import StandardizedTransformer
from .groups import Twin
from .printing import printed

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class DraftRun:
    """What the run of one twin gave.

    Attributes:
        unkept: names of the usual equations that it does not keep.
    """

    twin: Twin
    unkept: frozenset[str]


def run(known: Family, name: str, say: Progress) -> DraftRun:
    """Derive the names and values of a twin, of those that are made for every decoder.

    Raises:
        ProbeError: its wiring or its places cannot be derived; the message says what stood in the way.
    """
    from ..measure.collect import all_identities
    from ..measure.run import measure

    say("building", 0.0)
    loaded = load_twin(Target(known.name, name, "tiny"), attn="eager", dtype=None, device="cpu", made=True)
    say("deriving names and places", 0.2)
    family = derived(loaded)
    say("evaluating identities", 0.6)
    identities, _ = all_identities(measure(StandardizedTransformer(loaded, family=family)))
    unkept = frozenset(identity.name for identity in identities if not identity.holds)
    return DraftRun(Twin(name, loaded.module, family), unkept)


def source(known: Family, runs: Sequence[DraftRun]) -> str:
    """The module's text."""
    return printed(known, [run.twin for run in runs], frozenset[str]().union(*(run.unkept for run in runs)))
