"""Rotary and its variants: which dimensions turn, in which pairs, by which positions, and blocks without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ...instruments.tap import MASKED
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import explain, per_block, tolerance
from ..attention.traced import judged
from ..base import Measured, Quirk, Verdict, some
from .frequencies import rope_entries
from .places import added_by_position
from .positions import Track, streams_of_positions, tracks
from .turning import Rotary, rotaries


def _each(run: Run, holds: Callable[[Rotary], bool]) -> list[bool | None]:
    return [None if rotary is None else holds(rotary) for rotary in rotaries(run)]


def nope_blocks(run: Run) -> Verdict:
    """Gives every position one input: where the queries and keys stay and no key of a row scores higher than another,
    and no vector of the position is added to the stream, nothing there depends on the position.
    """
    added = added_by_position(run) > tolerance(run)
    found: list[bool | None] = []
    for turned, track in zip(rotaries(run), tracks(run), strict=True):
        if turned is None or track is None:
            found.append(None)
            continue
        keys = track.keys
        still = float((keys - keys[:1]).abs().max() / keys.abs().max()) < tolerance(run)
        found.append(not turned.turning and still and not _distance_counts(track) and not added)
    return judged(run, found)


def _distance_counts(track: Track) -> bool:
    """Whether scores of one input at all positions differ along a row."""
    if track.scores is None:
        return False
    scores = track.scores[:, -1]
    seen = scores > MASKED
    spread = torch.where(seen, scores, -torch.inf).amax(-1) - torch.where(seen, scores, torch.inf).amin(-1)
    return float(spread.max()) > 1e-3 * float(scores[seen].abs().max())


def partial_rotary(run: Run) -> Verdict:
    """Which dimensions of a query change with the position: a leading part of the head only, or others too."""
    found = _each(run, lambda rotary: rotary.extent == "leading")
    return judged(run, found, *_share(run, found))


def proportional_rotary(run: Run) -> Verdict:
    """The same: the first part of both halves of the head, on frequencies whose base is the config's when spaced
    over the whole head.
    """
    found = _each(run, lambda rotary: rotary.extent == "both halves" and rotary.style == "halves")
    return judged(run, found, *_share(run, found))


def _share(run: Run, found: list[bool | None]) -> tuple[Measured, dict[str, str]]:
    first = next((index for index, answer in enumerate(found) if answer), None)
    if first is None:
        return {}, {}
    rotary = rotaries(run)[first]
    assert rotary is not None
    measured: Measured = {"turning": len(rotary.turning), "width": rotary.width, "share": digits(rotary.share)}
    base = rotary.base()
    if base is not None:
        measured["base"] = digits(base)
    names = {
        "share": [*rope_entries(run, first, "partial_rotary_factor"), "partial_rotary_factor"],
        "turning": ["rotary_dim"],
        "base": rope_entries(run, first, "rope_theta"),
    }
    return measured, explain(run, measured, names)


def interleaved_rotary(run: Run) -> Verdict:
    """Which two dimensions turn as one complex number: neighbours, or one of each half of the part that turns."""
    found = [
        None if rotary is None or not rotary.turning else rotary.style == "interleaved" for rotary in rotaries(run)
    ]
    unpaired = [
        index for index, rotary in enumerate(rotaries(run)) if rotary and rotary.turning and rotary.style is None
    ]
    if unpaired and not any(found):
        return Verdict(
            "inconclusive",
            why=f"On {some(unpaired, len(run.text))} dimensions change with the position in no pairs that were tried.",
        )
    return _turning(run, found)


def _turning(run: Run, found: list[bool | None], measured: Measured | None = None) -> Verdict:
    """A verdict about blocks whose queries turn: none on those where they do not."""
    if all(rotary is None for rotary in rotaries(run)):
        return judged(run, found, measured)
    return per_block(found, measured, absent="No dimension of a query changes with the position.")


def multimodal_rotary(run: Run) -> Verdict:
    """Moves one of three streams of positions at a time: where each moves dimensions of its own, three positions are
    folded into one rotation. A model that takes one stream only makes the answer no.
    """
    turns = any(rotary is not None and rotary.turning for rotary in rotaries(run))
    streams = streams_of_positions(run) if turns else [None] * len(run.text)
    found: list[bool | None] = []
    for turned, moved in zip(rotaries(run), streams, strict=True):
        if turned is None or not turned.turning:
            found.append(None)
            continue
        apart = moved is not None and all(moved) and not set.intersection(*moved)
        found.append(apart and len({frozenset(stream) for stream in moved or []}) > 1)
    first = next((index for index, answer in enumerate(found) if answer), None)
    measured: Measured = {}
    if first is not None:
        dimensions = streams[first] or []
        measured["dimensions"] = [len(stream) for stream in dimensions]
        measured |= _shared_pairs(rotaries(run)[first], dimensions)
    found_in = {"pairs": rope_entries(run, first or 0, "mrope_section")}
    verdict = _turning(run, found, measured)
    return replace(verdict, explained=explain(run, measured, found_in)) if verdict.verdict == "yes" else verdict


def _shared_pairs(rotary: Rotary | None, streams: list[set[int]]) -> Measured:
    """How many pairs each stream turns, and whether each one's stand side by side, which one pair each does not show;
    nothing where they are no pairs.
    """
    if rotary is None or rotary.style is None:
        return {}
    places = {dimension: place for place, dimension in enumerate(rotary.turning)}
    half = len(places) // 2
    number = {d: p % half if rotary.style == "halves" else p // 2 for d, p in places.items()}
    pairs = [sorted({number[dimension] for dimension in stream if dimension in number}) for stream in streams]
    runs = all(each == list(range(each[0], each[-1] + 1)) for each in pairs if each)
    counts: Measured = {"pairs": [len(each) for each in pairs]}
    return counts if max(counts["pairs"]) < 2 else {**counts, "order": "side by side" if runs else "in turn"}


def _streams(measured: Measured, blocks: list[int] | None, total: int) -> str:
    pairs, order = measured.get("pairs"), measured.get("order")
    counts = [f"{pairs[0]}, {pairs[1]} and {pairs[2]} pairs a head"] if pairs and len(pairs) == 3 else []
    apart = {"side by side": ["side by side in this order"], "in turn": ["which take turns along the head"]}
    shared = ", ".join([*counts, *apart.get(order or "", [])])
    shared = f": {shared}" if shared else ""
    return (
        f"On {some(blocks or [], total)} three streams of positions, for time, height and width, turn dimensions of "
        f"their own{shared}; in text the three are equal."
    )


def _proportional(measured: Measured, blocks: list[int] | None, total: int) -> str:
    share = measured.get("share")
    part = (
        f"the first {share:.0%} of each half of a head turns"
        if isinstance(share, float)
        else "the first part of each half of a head turns"
    )
    return (
        f"On {some(blocks or [], total)} {part}, at frequencies spaced over the whole head; the dimensions after it "
        "ignore the position."
    )


def _leading(measured: Measured, blocks: list[int] | None, total: int) -> str:
    share, turning = measured.get("share"), measured.get("turning")
    part = "dimensions" if turning is None else f"{turning} dimensions"
    return (
        f"On {some(blocks or [], total)} only the first "
        f"{f'{share:.0%}' if isinstance(share, float) else part} of a head turn with the position."
    )


QUIRKS = (
    Quirk(
        "nope-blocks",
        "Blocks without rotary",
        "text",
        nope_blocks,
        lambda m, b, n: (
            f"On {some(b or [], n)} queries and keys are the same at every position: there is no rotary, and only "
            "the mask tells order."
        ),
    ),
    Quirk("partial-rotary", "Partial rotary", "text", partial_rotary, _leading),
    Quirk("proportional-rotary", "Proportional rotary", "text", proportional_rotary, _proportional),
    Quirk(
        "interleaved-rotary",
        "Interleaved rotary",
        "text",
        interleaved_rotary,
        lambda m, b, n: (
            f"On {some(b or [], n)} neighbouring dimensions 2i and 2i + 1 turn together, not dimension i with its "
            "partner in the other half."
        ),
    ),
    Quirk(
        "multimodal-rotary",
        "Three streams of positions",
        "text",
        multimodal_rotary,
        _streams,
    ),
)
