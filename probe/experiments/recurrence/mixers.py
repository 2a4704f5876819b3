"""Recurrent mixers: what their state is and how a step carries it on (:mod:`probe.experiments.recurrence.steps`)."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import per_block, phrase, tolerance
from ..base import Measured, Quirk, Verdict, some
from .stepping import apart_in_batch
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


def gated_recurrence(run: Run) -> Verdict:
    """Changes the state before a cached step: one number a channel, which fades by a number of its own that depends on
    the input, makes the answer yes. A state of several numbers a channel is a scan's.
    """
    return _verdict(run, [None if s is None else len(s.shape) == 1 and s.each and s.follows for s in steps(run)])


def matrix_memory(run: Run) -> Verdict:
    """Changes the state before a cached step: a matrix a head, all of which fades by one number that depends on the
    input, without the kept inputs of a convolution beside it, makes the answer yes.
    """
    return _verdict(
        run,
        [
            None if s is None else len(s.shape) == 3 and s.each and s.alike and s.follows and not s.convolves
            for s in steps(run)
        ],
    )


def state_in_parts(run: Run) -> Verdict:
    """Takes a number off one kept tensor, and multiplies the others that are carried on by that number's exponential:
    where a step then gives the same, the one holds a logarithm and all of them stand for one state.
    """
    every = steps(run)
    found = [None if step is None else step.together > 1 for step in every]
    parts = {step.together for step in every if step is not None and step.together > 1}
    return per_block(found, {"tensors": max(parts)} if parts else {}, absent=NO_MIXER)


def mixed_steps(run: Run) -> Verdict:
    """Takes a cached step of two rows, and of the first of them alone: where it then gives other things, rows of a step
    reach each other.
    """
    if not any(step is not None for step in steps(run)):
        return Verdict("n/a", why=NO_MIXER)
    apart = apart_in_batch(run)
    if not apart.mixes(tolerance(run)):
        return Verdict("no", measured={"change": 0.0})
    measured: Measured = {"positions_a_row": apart.positions}
    if apart.positions == 1:
        measured["change"] = digits(apart.change, 2)
    return Verdict("yes", measured=measured)


def _mixed(measured: Measured, _: list[int] | None, __: int) -> str:
    positions = measured.get("positions_a_row", 1)
    gives = "gives a row other things than the step of that row alone"
    if positions != 1:
        gives = f"gives {positions} positions a row in place of one"
    return f"A cached step of two rows {gives}: generate from one prompt at a time."


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
        "gated-recurrence",
        "Gated linear recurrence",
        "text",
        gated_recurrence,
        lambda m, b, n: (
            f"On {some(b or [], n)} positions are mixed by a gated linear recurrence: each channel keeps one number, "
            f"{_state(m)} a row, which fades by a number of its own that the input decides."
        ),
    ),
    Quirk(
        "matrix-memory",
        "Matrix memory",
        "text",
        matrix_memory,
        lambda m, b, n: (
            f"On {some(b or [], n)} positions are mixed by a memory of one matrix a head, {_state(m)} a row with the "
            "heads first, all of which fades by one number that the input decides."
        ),
    ),
    Quirk(
        "state-in-parts",
        "State kept in parts",
        "text",
        state_in_parts,
        lambda m, b, n: (
            f"On {some(b or [], n)} {phrase(m, 'tensors', '{} ')}kept tensors stand for one state: one of them holds "
            "the logarithm of a number that the others are to be multiplied by, so an edit of one alone scales with it."
        ),
    ),
    Quirk(
        "mixed-steps",
        "Rows mix in cached steps",
        "text",
        mixed_steps,
        _mixed,
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
