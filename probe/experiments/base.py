"""What an experiment is: a question about a checkpoint that a run answers, with numbers.

An experiment looks at a :class:`~probe.measure.run.Run` (every value of one forward, and the derived wiring) and may
run the model again on changed inputs, weights or positions. It answers by what it saw, never by a class name or a flag;
a config entry may only explain a number that was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..measure.listing import listed
from ..measure.run import Run
from ..schema import Experiment
from ..standard import StandardizedTransformer

Answer = Literal["yes", "no", "n/a", "inconclusive"]
Measured = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What one experiment found.

    Attributes:
        verdict: the answer.
        blocks: the blocks it holds on; None where it is not a property of blocks.
        measured: the numbers, rounded so that two machines agree.
        explained: measured number -> the config entry that names it; only where the two were compared and are equal.
        why: the reason of an inconclusive verdict, or of `n/a`.
    """

    verdict: Answer
    blocks: list[int] | None = None
    measured: Measured = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True)
class Quirk:
    """One property a reader must know, and the experiment that decides it.

    Attributes:
        slug: its fixed name.
        label: the chip's text.
        about: `text` or `vision`.
        run: the experiment.
        say: one sentence from the measured numbers, the blocks it holds on, and the number of blocks.
        built: for a property of shapes alone (head counts, widths, ties): decides it on a model that was only built.
    """

    slug: str
    label: str
    about: Literal["text", "vision"]
    run: Callable[[Run], Verdict]
    say: Callable[[Measured, list[int] | None, int], str]
    built: Callable[[StandardizedTransformer], Verdict] | None = None

    def record(self, verdict: Verdict, blocks: int) -> Experiment:
        """The verdict as the record holds it."""
        statement = verdict.why
        if verdict.verdict == "yes":
            statement = self.say(verdict.measured, verdict.blocks, blocks)
        return Experiment(
            slug=self.slug,
            label=self.label,
            verdict=verdict.verdict,
            blocks=verdict.blocks,
            measured=verdict.measured,
            explained=verdict.explained,
            statement=statement,
        )


ERROR = "error"
"""The measured entry of an experiment that raised: the name of the exception's class."""

WORDS = 200
"""Most characters of an error's message that a verdict repeats."""


STRICT = "PROBE_STRICT"
"""Environment variable: where it is set, an experiment that raises stops the probe, as the tests want it."""


def stopped(quirk: Quirk, error: Exception) -> Verdict:
    """The verdict of an experiment that raised."""
    why = f"The experiment {quirk.slug} stopped with an error before it could answer: {in_words(error)}."
    return Verdict("inconclusive", measured={ERROR: type(error).__name__}, why=why)


def in_words(error: Exception) -> str:
    """An exception's class and the first line of its message."""
    message = str(error).strip().split("\n")[0][:WORDS].rstrip(" .")
    return f"{type(error).__name__}, {message}" if message else type(error).__name__


MANY = 8
"""Most single blocks and ranges that a sentence lists where it can tell which blocks they are by a rule."""

ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def some(blocks: list[int], total: int, one: str = "block", several: str = "blocks") -> str:
    """Blocks, or other numbered things, in words: `every block`, `block 3`, `blocks 0 to 4 and 6`,
    `24 of 48 blocks (every second from 0 to 46)`, `36 of 48 blocks (all but every fourth from 3 to 47)`. Where there
    are many, without a rule, all of them are listed.
    """
    if len(blocks) == total:
        return f"every {one}"
    ranges = _ranges(blocks)
    if len(ranges) <= MANY:
        return f"{several if len(blocks) > 1 else one} {listed(ranges)}"
    others = sorted(set(range(total)) - set(blocks))
    rule, exception, rest = _stepping(blocks), _stepping(others), _ranges(others)
    if rule is None and (exception is not None or len(rest) <= MANY):
        rule = f"all but {exception or listed(rest)}"
    return f"{len(blocks)} of {total} {several} ({rule or listed(ranges)})"


def _ranges(blocks: list[int]) -> list[str]:
    """Ascending numbers, three or more in a row as a range."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][-1] + 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(block) for block in run]
    return parts


def _stepping(blocks: list[int]) -> str | None:
    """In words, more than a few ascending numbers that are equally far apart; None for others."""
    steps = {after - before for before, after in zip(blocks, blocks[1:], strict=False)}
    if len(blocks) <= MANY or len(steps) != 1 or not 1 < (step := steps.pop()) < len(ORDINALS) + 2:
        return None
    return f"every {ORDINALS[step - 2]} from {blocks[0]} to {blocks[-1]}"
