"""What norm and head alone make of the last block's output, where the model does more on the way to its logits: what
the head's input is multiplied by, and how far that reading is from the logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...measure.listing import listed
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Fact
from ...values.readout import number
from ..answers import entry, equal, tolerance

DIVISORS = ("logits_mup_width_multiplier",)
"""Config entries that hold what the head's input is divided by."""

WIDTHS = ("dim_model_base",)
"""Config entries that hold the width by which the stream's own divides the head's input."""


def naive_lens_facts(run: Run) -> list[Fact]:
    """Two facts, each where the model has what it tells of; none where more than modules leads to the logits."""
    return [*_head_factor(run), *_naive(run)] if run.model.readout.modules else []


def _head_factor(run: Run) -> Iterator[Fact]:
    normed, read = run.root("final_norm_output"), run.root("lm_head_output")
    head = run.model.get(run.model.readout.modules[-1])._module
    if normed is None or read is None or getattr(head, "in_features", None) != normed.shape[-1]:
        return
    with torch.no_grad():
        made = head(normed.to(run.dtype)).float()
    factor = float((made * read).sum() / made.square().sum())
    left = float((factor * made - read).abs().max() / read.abs().max())
    if left > tolerance(run) or abs(factor - 1) <= tolerance(run):
        return
    found = _named(run, factor)
    words = " / ".join(f"`{name}`" if name else "1" for name in (found.get("entry"), found.get("over")))
    yield Fact(
        name="head_factor",
        label="Factor before the head",
        value=digits(factor),
        measured=found,
        statement=f"What the head reads is `final_norm_output` times {digits(factor):g}{f', {words}' * bool(found)}.",
    )


def _named(run: Run, factor: float) -> dict[str, Any]:
    """The config entries of which the factor is a quotient; `entry` is left out where that is one over an entry."""
    for name in DIVISORS:
        if equal(digits(1 / factor), entry(run, name)):
            return {"over": name}
    width = entry(run, "hidden_size")
    for name in WIDTHS:
        held = entry(run, name)
        if isinstance(held, (int, float)) and isinstance(width, int) and equal(digits(factor), digits(held / width)):
            return {"entry": name, "over": "hidden_size"}
    return {}


def _naive(run: Run) -> Iterator[Fact]:
    stream, logits = run.text.get(len(run.text) - 1, "", "layer_output"), run.root("logits")
    left_out = _left_out(run)
    if stream is None or logits is None or not left_out:
        return
    with torch.no_grad():
        made: Any = stream.to(run.dtype)
        for path in run.model.readout.modules:
            made = run.model.get(path)._module(made)
    made = made.float()
    if made.shape != logits.shape:
        return
    apart = float((made - logits).abs().max() / logits.abs().max())
    if apart <= tolerance(run):
        return
    probabilities = float((made.softmax(-1) - logits.softmax(-1)).abs().max())
    yield Fact(
        name="naive_lens",
        label="Lens of norm and head alone",
        value=digits(probabilities, 2),
        measured={"logits": digits(apart, 2)},
        statement=(
            f"Norm and head alone, without {listed(left_out)}, miss the model's logits by up to {digits(apart, 2):g} "
            f"times the largest of them, and its next-token probabilities by up to {digits(probabilities, 2):g}."
        ),
    )


def _left_out(run: Run) -> list[str]:
    """What the model does beside norm and head, in words."""
    readout, config = run.model.readout, run.model.text_config
    factors = {
        "before the norm": readout.leaving,
        "before the head": readout.entering,
        "behind the head": readout.scale,
    }
    places = [place for place, given in factors.items() if number(given, config) != 1.0]
    said = [f"the factor {place}" for place in places]
    return said if readout.cap is None else [*said, "the cap"]
