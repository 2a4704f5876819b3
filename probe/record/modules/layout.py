"""How heads lie on an axis of a weight: equal groups, in each of them runs of heads of one kind, side by side.

Queries, keys and values in three blocks are one group of three runs; a head's own three beside each other are as many
groups as heads; queries that share a key and a value may be grouped with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

EXPERTS = "expert_outputs"
"""What the stacked weights of a mixture make."""

REST = "rest"
"""What no head was seen to depend on."""

SHORT = {
    "attention_queries": "queries",
    "attention_keys": "keys",
    "attention_values": "values",
    "attention_output": "head outputs",
}


@dataclass(frozen=True)
class Segment:
    """Consecutive places that belong to one head, or to one expert."""

    name: str
    width: int


@dataclass(frozen=True)
class Run:
    """Heads of one kind side by side."""

    name: str
    heads: int
    width: int


@dataclass(frozen=True)
class Layout:
    """An axis: ``groups`` times the same runs."""

    groups: int
    runs: tuple[Run, ...]

    @property
    def total(self) -> int:
        """Length of the axis."""
        return self.groups * self._step

    @property
    def _step(self) -> int:
        return sum(run.heads * run.width for run in self.runs)

    def count(self, name: str) -> int:
        """How many heads of one kind there are."""
        return self.groups * max((run.heads for run in self.runs if run.name == name), default=0)

    def words(self) -> str:
        """``4 × (queries 2 × 8, keys 8, values 8)``, ``6 × 16``."""
        if self.runs[0].name == EXPERTS:
            return f"{self.count(EXPERTS)} experts"
        if len(self.runs) == 1:
            return f"{self.groups * self.runs[0].heads} × {self.runs[0].width}"
        inner = ", ".join(
            f"{SHORT.get(run.name, run.name)} {f'{run.heads} × ' if run.heads > 1 else ''}{run.width}"
            for run in self.runs
        )
        return f"{self.groups} × ({inner})" if self.groups > 1 else inner

    def places(self, name: str, head: int) -> list[int]:
        """Where one head of a kind lies."""
        found: list[int] = []
        offset = 0
        for run in self.runs:
            if run.name == name:
                start = head // run.heads * self._step + offset + head % run.heads * run.width
                found += range(start, start + run.width)
            offset += run.heads * run.width
        return found

    def subscript(self, name: str, axis: int) -> str:
        """What takes head ``h`` of one kind out of the parameter."""
        pieces = []
        offset = 0
        for run in self.runs:
            if run.name == name:
                pieces.append(self._slice(run, offset))
            offset += run.heads * run.width
        inside = pieces[0] if len(pieces) == 1 else f"[{', '.join(f'*range({p})'.replace(':', ', ') for p in pieces)}]"
        return f"[{':, ' * axis}{inside}]"

    def _slice(self, run: Run, offset: int) -> str:
        if run.heads == 1:
            terms = [_times("h", self._step)] if self.groups > 1 else []
        elif self.groups == 1:
            terms = [_times("h", run.width)]
        else:
            terms = [_times(f"h // {run.heads}", self._step), _times(f"h % {run.heads}", run.width)]
        start = " + ".join([*terms, *([str(offset)] if offset or not terms else [])])
        stop = " + ".join([*terms, str(offset + run.width)])
        return f"{start}:{stop}"


def _times(what: str, factor: int) -> str:
    return what if factor == 1 else f"{what} * {factor}"


def layout(places: Mapping[str, Sequence[Sequence[int]]], length: int) -> Layout | None:
    """The layout of an axis on which every head has its places.

    Args:
        places: for each kind, for each of its heads in order, the places that belong to it.
        length: of the axis.

    Returns:
        None where the heads' places overlap, or where no order of equal groups gives them.
    """
    owner: list[tuple[str, int] | None] = [None] * length
    for name, heads in places.items():
        for head, own in enumerate(heads):
            for place in own:
                if owner[place] is not None:
                    return None
                owner[place] = (name, head)
    segments = [Segment(who[0] if who else REST, len(list(same))) for who, same in groupby(owner)]
    found = _grouped(segments)
    return found if found is not None and _as_they_lie(found, places) else None


def _grouped(segments: Sequence[Segment]) -> Layout | None:
    for period in range(1, len(segments) + 1):
        if len(segments) % period == 0 and all(s == segments[k % period] for k, s in enumerate(segments)):
            runs = [(segment, len(list(same))) for segment, same in groupby(segments[:period])]
            found = tuple(Run(segment.name, heads, segment.width) for segment, heads in runs)
            groups = len(segments) // period
            if period == 1:
                return Layout(1, (Run(found[0].name, groups, found[0].width),))
            return Layout(groups, found)
    return None


def _as_they_lie(found: Layout, places: Mapping[str, Sequence[Sequence[int]]]) -> bool:
    """Whether the subscripts give each head its places."""
    return all(
        found.count(name) == len(heads) and all(found.places(name, head) == list(own) for head, own in enumerate(heads))
        for name, heads in places.items()
    )


def within(places: Sequence[int]) -> str | None:
    """Consecutive places as a slice; None for others."""
    if list(places) != list(range(places[0], places[-1] + 1)):
        return None
    return f"{places[0]}:{places[-1] + 1}"
