"""In which order queries and keys come about: projection, norm, rotary; and on which blocks each step is there."""

from __future__ import annotations

from dataclasses import dataclass

from probe.render.know.subject import BLOCK, Subject
from probe.schema import Experiment

ATTENTION = f"{BLOCK}.self_attn"
SIDES = {"attention_queries": "queries_normed", "attention_keys": "keys_normed"}
"""The values that turn, and under which name the experiment on norms counts the blocks of each."""


@dataclass(frozen=True)
class Path:
    """How the queries or the keys of some blocks come about.

    Attributes:
        steps: in the order in which they run.
        blocks: the blocks.
        open: what is not known of the order; empty where all is.
    """

    steps: tuple[str, ...]
    blocks: tuple[int, ...]
    open: str

    @property
    def words(self) -> str:
        """``projection, norm, rotary (post-rotary)``."""
        rotary = "post-rotary" if any("rotary" in step for step in self.steps) else "no rotary"
        order = f"; their order: {self.open[:1].lower()}{self.open[1:].rstrip('.')}" if self.open else ""
        return f"{', '.join(self.steps)} ({rotary}{order})"


def turning(subject: Subject) -> frozenset[int] | None:
    """The blocks whose queries turn with the position; None where no run could tell."""
    value = subject.value(ATTENTION, "attention_queries")
    pairs = _found(subject, "interleaved-rotary")
    if value is None or pairs is None or pairs.verdict == "inconclusive":
        return None
    if pairs.verdict == "n/a":
        return frozenset()
    still = {block for slug in ("nope-blocks", "alibi") for block in _blocks(subject, slug)}
    return frozenset(value.blocks or ()) - still


def paths(subject: Subject, name: str) -> list[Path]:
    """The ways of ``attention_queries`` or ``attention_keys``, by block; empty where they are not known.

    Which of both is normed was counted by the run behind the page: a checkpoint that was only built has no such number.
    """
    value, turned = subject.value(ATTENTION, name), turning(subject)
    norm = _found(subject, "qk-norm")
    if value is None or turned is None or norm is None or norm.verdict == "inconclusive":
        return []
    normed, counted = _blocks(subject, "qk-norm"), subject.measured_numbers("qk-norm").get(SIDES[name])
    if normed and counted is None:
        return []
    normed = normed if counted else frozenset()
    found: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for block in value.blocks or ():
        found.setdefault(_path(subject, block, block in normed, block in turned), []).append(block)
    return [Path(steps, tuple(blocks), unknown) for (steps, unknown), blocks in found.items()]


def _path(subject: Subject, block: int, normed: bool, turned: bool) -> tuple[tuple[str, ...], str]:
    """The steps on one block, and what of them is open."""
    rotary = ["rotary"] if turned else []
    if not normed or not rotary:
        return ("projection", *(["norm"] if normed else []), *rotary), ""
    after = _found(subject, "norm-after-rotary")
    if after is None or after.verdict not in ("yes", "no"):
        return ("projection", "norm and rotary"), (after.statement if after else None) or "not examined"
    if block in _blocks(subject, "norm-after-rotary"):
        return ("projection", "rotary", "norm"), ""
    return ("projection", "norm", "rotary"), ""


def _found(subject: Subject, slug: str) -> Experiment | None:
    return next((e for e in subject.record.experiments if e.slug == slug), None)


def _blocks(subject: Subject, slug: str) -> frozenset[int]:
    found = subject.quirks.get(slug)
    return frozenset(found.blocks or ()) if found else frozenset()
