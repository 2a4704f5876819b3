"""Recurrent mixers: what their state is and how a step carries it on (:mod:`probe.experiments.steps`)."""

from __future__ import annotations

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import per_block
from .base import Measured, Quirk, Verdict, some
from .steps import steps

NO_MIXER = "No block mixes positions without an attention."
NO_STATE = (
    "No step could be taken from a changed state: the mixer keeps none between steps that could be found, or keeps it "
    "in several tensors that stand for one."
)


def _verdict(run: Run, holds: list[bool | None]) -> Verdict:
    """A verdict with the state's shape, and the range of the numbers that multiply it where each element has one."""
    every = steps(run)
    shown = [step for step, answer in zip(every, holds, strict=True) if step is not None and answer]
    measured: Measured = {}
    if shown and shown[0].shape:
        measured["state"] = list(shown[0].shape)
        if all(step.each for step in shown):
            measured["least_factor"] = digits(min(step.least for step in shown), 2)
            measured["largest_factor"] = digits(max(step.largest for step in shown), 2)
    mixes = any(term.kind == "mixer" for anatomy in run.text.anatomy for term in anatomy.terms)
    return per_block(holds, measured, absent=NO_MIXER, unknown=NO_STATE if mixes else None)


def mamba1(run: Run) -> Verdict:
    """Changes the state before a cached step: a number of its own for each element, which depends on the input, makes
    the answer yes.
    """
    return _verdict(
        run, [None if s is None else len(s.shape) > 1 and s.each and not s.alike and s.follows for s in steps(run)]
    )


def mamba2(run: Run) -> Verdict:
    """Changes the state before a cached step: one number for each head, which depends on the input, beside the kept
    inputs of a convolution, makes the answer yes.
    """
    return _verdict(run, [None if s is None else s.each and s.alike and s.follows and s.convolves for s in steps(run)])


def delta_rule(run: Run) -> Verdict:
    """Changes the state before a cached step: where what is left of an element depends on the others too, the step
    takes off what the state holds for its key before it writes.
    """
    return _verdict(run, [None if s is None else len(s.shape) > 1 and s.tried and not s.each for s in steps(run)])


def fixed_decay(run: Run) -> Verdict:
    """Changes the state before a cached step: numbers that multiply it and are the same for another input make the
    answer yes.
    """
    known = [None if step is None or (step.shape and not step.tried) else step for step in steps(run)]
    return _verdict(run, [None if s is None else s.tried and s.each and not s.follows for s in known])


def convolution_mixers(run: Run) -> Verdict:
    """Looks at what a mixer keeps for the next step: the inputs of a convolution and no state make the answer yes."""
    return _verdict(run, [None if s is None else not s.shape and s.convolves for s in steps(run)])


def _state(measured: Measured) -> str:
    return "×".join(map(str, measured["state"])) if measured.get("state") else "a fixed size"


QUIRKS = (
    Quirk(
        "mamba1",
        "Selective scan",
        "text",
        mamba1,
        lambda m, b, n: (
            f"On {some(b or [], n)} positions are mixed by a selective scan: each element of the state, {_state(m)} a "
            "row, fades by a number of its own that the input decides."
        ),
    ),
    Quirk(
        "mamba2",
        "State-space dual",
        "text",
        mamba2,
        lambda m, b, n: (
            f"On {some(b or [], n)} positions are mixed by a state-space dual scan: all of a head's state, {_state(m)} "
            "a row with the heads first, fades by one number that the input decides."
        ),
    ),
    Quirk(
        "delta-rule",
        "Delta rule",
        "text",
        delta_rule,
        lambda m, b, n: (
            f"On {some(b or [], n)} a step takes off what the state, {_state(m)} a row, holds for its key before it "
            "writes: an edit of the state fades by more than a factor."
        ),
    ),
    Quirk(
        "fixed-decay",
        "Fixed decay",
        "text",
        fixed_decay,
        lambda m, b, n: (
            f"On {some(b or [], n)} the state, {_state(m)} a row, fades by the same numbers whatever the input is."
        ),
    ),
    Quirk(
        "convolution-mixers",
        "Convolutions in place of attention",
        "text",
        convolution_mixers,
        lambda m, b, n: (
            f"On {some(b or [], n)} positions are mixed by a short convolution alone: nothing from before its window "
            "is kept."
        ),
    ),
)
