"""Positions: rotary and its variants, blocks without it, and positions that enter by another way."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import entry, equal, explain, per_block, small, tolerance
from .base import Measured, Quirk, Verdict, some
from .extra import LENGTH, forward, once, token_ids
from .positions import Track, streams_of_positions, tracks
from .tap import Change, hooks
from .traced import MASKED, judged
from .turning import Rotary, rotaries

RESCALED = 0.05
"""How far a frequency must be from its base's, relative to it, to count as another."""

LEAST = 12
"""Positions from which a step is looked for in how the queries grow."""

HALF = "Frequencies are read off in float32 only: in half precision a slow rotation is lost in rounding."


def _each(run: Run, holds: Callable[[Rotary], bool]) -> list[bool | None]:
    return [None if rotary is None else holds(rotary) for rotary in rotaries(run)]


def _type(run: Run, block: int) -> str:
    return run.model.layer_types[block]


def _rope(run: Run, block: int, name: str) -> list[str]:
    """Where a config may hold a rotary number of a block."""
    return [f"rope_parameters.{name}", f"rope_parameters.{_type(run, block)}.{name}"]


def nope_blocks(run: Run) -> Verdict:
    """Gives every position one input: where the queries and keys stay and no key of a row scores higher than another,
    and no vector of the position is added to the stream, nothing there depends on the position.
    """
    added = _added(run) > tolerance(run)
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
        "share": [*_rope(run, first, "partial_rotary_factor"), "partial_rotary_factor"],
        "base": _rope(run, first, "rope_theta"),
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
    streams = streams_of_positions(run)
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
        measured["dimensions"] = [len(stream) for stream in streams[first] or []]
    return _turning(run, found, measured)


def rotary_bases(run: Run) -> Verdict:
    """Fits the base of each block's frequencies: one for all blocks makes the answer no."""
    if run.dtype is not torch.float32:
        return Verdict("inconclusive", why=HALF)
    bases: dict[str, set[float]] = {}
    for index, rotary in enumerate(rotaries(run)):
        base = None if rotary is None else _base(run, index, rotary)
        if base is not None:
            bases.setdefault(_type(run, index), set()).add(base)
    every = sorted(set().union(*bases.values()))
    measured: Measured = {f"base_{kind}": min(found) for kind, found in bases.items() if len(found) == 1}
    names = {f"base_{kind}": [f"rope_parameters.{kind}.rope_theta", "rope_parameters.rope_theta"] for kind in bases}
    if not every:
        return Verdict("n/a", why="No block's frequencies follow a base.")
    return Verdict("yes" if len(every) > 1 else "no", measured=measured, explained=explain(run, measured, names))


def _base(run: Run, index: int, rotary: Rotary) -> float | None:
    """The base, the config's own number where the fitted one is equal to it."""
    base = rotary.base()
    named = next(
        (value for path in _rope(run, index, "rope_theta") if isinstance(value := entry(run, path), (int, float))), None
    )
    return named if base is not None and equal(base, named) else None if base is None else digits(base)


def rescaled_rotary(run: Run) -> Verdict:
    """Each frequency against ``base^(-2i / width)``: a series that starts at one radian a position makes the answer
    no.
    """
    if run.dtype is not torch.float32:
        return Verdict("inconclusive", why=HALF)
    found: list[bool | None] = []
    ratios: list[float] = []
    first = None
    for index, rotary in enumerate(rotaries(run)):
        theta = next(
            (value for path in _rope(run, index, "rope_theta") if isinstance(value := entry(run, path), (int, float))),
            None,
        )
        if rotary is None or not rotary.frequencies or theta is None:
            found.append(None)
            continue
        each = enumerate(rotary.frequencies)
        slowed = [theta ** (-2 * pair / rotary.spaced) / speed for pair, speed in each if speed > 0]
        found.append(max(abs(ratio - 1) for ratio in slowed) > RESCALED)
        if found[-1]:
            ratios += slowed
            first = index if first is None else first
    measured: Measured = {}
    if first is not None:
        measured = {"slowed_at_least": digits(min(ratios), 3), "slowed_at_most": digits(max(ratios), 3)}
    names = {} if first is None else {"slowed_at_most": _rope(run, first, "factor")}
    return per_block(
        found,
        measured,
        explain(run, measured, names),
        absent="No block's frequencies follow a base that the config names.",
    )


def attention_temperature(run: Run) -> Verdict:
    """Lengths of the queries of one input at successive and at shifted positions: where they grow by one factor on
    every head, the queries are scaled by the position; a rotation keeps their length.
    """
    found: list[bool | None] = []
    factors: list[list[float]] = []
    for track in tracks(run):
        if track is None:
            found.append(None)
            continue
        in_call = _growth(track.constant.norm(dim=-1).transpose(0, 1))
        moved = _growth(track.queries.norm(dim=-1).transpose(1, 2).flatten(0, 1), track.queries.shape[2])
        close = 5 * tolerance(run)
        found.append(any(growth is not None and max(growth) > 1 + close for growth in (in_call, moved)))
        if found[-1]:
            factors.append(in_call if in_call is not None and max(in_call) > 1 + close else moved or [])
    measured, explained = _steps(run, factors[0]) if factors else ({}, {})
    return judged(run, found, measured, explained)


def _growth(lengths: torch.Tensor, samples: int = 1) -> list[float] | None:
    """What multiplies the lengths ``[positions * samples, heads]``, relative to the first position; None where that is
    not one factor for all heads.
    """
    ratios = lengths / lengths[:samples].repeat(len(lengths) // samples, 1).clamp_min(1e-30)
    factors = ratios.mean(1)
    return None if float((ratios - factors[:, None]).abs().max()) > 1e-3 else factors.tolist()


def _steps(run: Run, factors: list[float]) -> tuple[Measured, dict[str, str]]:
    """Where the factor first rises, and by how much, as ``1 + scale * log(1 + floor((position + 1) / step))`` has
    it.
    """
    measured: Measured = {"largest_factor": digits(max(factors)), "positions": len(factors)}
    if len(factors) < LEAST:
        return {"largest_factor": digits(max(factors))}, {}
    rise = next(index for index, factor in enumerate(factors) if factor > factors[0] * (1 + 1e-4))
    step, scale = rise + 1, (factors[rise] - 1) / torch.log(torch.tensor(2.0)).item()
    fitted = [
        1 + scale * torch.log1p(torch.tensor(float((position + 1) // step))).item() for position in range(len(factors))
    ]
    if max(abs(a - b) for a, b in zip(fitted, factors, strict=True)) < 5 * tolerance(run):
        measured |= {"step": step, "scale": digits(scale, 3)}
    return measured, explain(run, measured, {"step": ["floor_scale"], "scale": ["attn_scale"]})


def position_embeddings(run: Run) -> Verdict:
    """What enters block 0 at successive positions of one repeated token: a vector of the position makes it differ."""
    change = _added(run)
    return Verdict("yes" if change > tolerance(run) else "no", measured={"change": small(run, change)})


@once
def _added(run: Run) -> float:
    """Largest difference between what enters block 0 at the last positions of one repeated token, relative to it."""
    held: list[torch.Tensor] = []

    def keep(stream: torch.Tensor) -> torch.Tensor:
        held.append(stream.detach().float())
        return stream

    entering: list[tuple[torch.nn.Module, Change]] = [(run.text.envoys[0]._module, keep)]
    with hooks(entering):
        forward(run, token_ids(run, 1).repeat(1, LENGTH))
    stream = held[0]
    axis = next((axis for axis in range(stream.ndim - 1) if stream.shape[axis] == LENGTH), stream.ndim - 2)
    late = stream.movedim(axis, 0)[stream.shape[axis] // 2 :]
    return float((late - late[:1]).abs().max() / late.abs().max().clamp_min(1e-30))


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
    share = measured.get("share")
    return (
        f"On {some(blocks or [], total)} only the first "
        f"{f'{share:.0%}' if isinstance(share, float) else 'dimensions'} of a head turn with the position."
    )


def _bases(measured: Measured, blocks: list[int] | None, total: int) -> str:
    parts = [
        f"{base:,.0f} on {name.removeprefix('base_').replace('_', '-').replace('-attention', '')} blocks"
        for name, base in measured.items()
        if base
    ]
    return f"The rotary base differs between kinds of blocks{': ' if parts else ''}{' and '.join(parts)}."


def _slowed(measured: Measured, blocks: list[int] | None, total: int) -> str:
    most = measured.get("slowed_at_most")
    return (
        f"On {some(blocks or [], total)} rotary frequencies are lower than their base "
        f"gives{f', by a factor of up to {most:g}' if most else ''}."
    )


def _temperature(measured: Measured, blocks: list[int] | None, total: int) -> str:
    step, scale = measured.get("step"), measured.get("scale")
    how = f": the factor is 1 + {scale:g}·log(1 + ⌊(position + 1) / {step:g}⌋)" if step and scale else ""
    return (
        f"On {some(blocks or [], total)} queries are multiplied by a factor that grows with their place in the "
        f"call{how}."
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
        lambda m, b, n: (
            f"On {some(b or [], n)} three streams of positions, for time, height and width, turn dimensions of their "
            "own; in text the three are equal."
        ),
    ),
    Quirk("rotary-bases", "Several rotary bases", "text", rotary_bases, _bases),
    Quirk("rescaled-rotary", "Rescaled rotary", "text", rescaled_rotary, _slowed),
    Quirk("attention-temperature", "Attention temperature", "text", attention_temperature, _temperature),
    Quirk(
        "position-embeddings",
        "Position embeddings",
        "text",
        position_embeddings,
        lambda m, b, n: "A vector of each position is added to the embedding before block 0.",
    ),
)
