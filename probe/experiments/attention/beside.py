"""What a block takes from earlier blocks beside the stream: a state, or the keys that another one's top-k chose."""

from __future__ import annotations

from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import per_block, phrase
from ..base import Measured, Quirk, Verdict, some
from .handing import Pair, handed
from .sources import borrowed_kv


def handed_state(run: Run) -> Verdict:
    """Adds noise to the stream that one block takes, and gives every other block the stream as it was: a later block
    whose output moves all the same is handed something beside the stream. Keys and values of an earlier block, and the
    keys that its top-k chose, are quirks of their own and make no answer here.
    """
    found = handed(run)
    borrowers = borrowed_kv(run).blocks or []
    pairs = [pair for pair in found.moves if pair[1] not in borrowers and pair not in _followed(run)]
    measured: Measured = {}
    if pairs:
        sizes = [found.moves[pair] for pair in pairs]
        measured = {
            "from_blocks": sorted({source for source, _ in pairs}),
            "least_change": digits(min(sizes), 2),
            "largest_change": digits(max(sizes), 2),
        }
        names = {name for pair in pairs for name in found.ways.get(pair, ())}
        measured |= {"arguments": sorted(names)} if names else {}
    return _verdict(run, pairs, measured)


def shared_indices(run: Run) -> Verdict:
    """The same on a prompt longer than what a top-k takes: a block whose queries see other keys with noise in another
    block's stream, and the same ones with noise in its own, is handed the choice.
    """
    pairs = sorted(_followed(run))
    measured: Measured = {}
    if pairs:
        measured = {"chosen_by_blocks": sorted({source for source, _ in pairs})}
        measured["last_that_chooses"] = all(source == _chooser(run, target) for source, target in pairs)
    return _verdict(run, pairs, measured)


def _followed(run: Run) -> set[Pair]:
    """Pairs of blocks, of which the second sees the keys that the first chose."""
    found = handed(run)
    return {pair for pair in found.support if pair[1] not in found.own}


def _chooser(run: Run, index: int) -> int | None:
    """The last block before one that chooses by its own stream."""
    return max((each for each in handed(run).own if each < index), default=None)


def _verdict(run: Run, pairs: list[Pair], measured: Measured) -> Verdict:
    targets = {target for _, target in pairs}
    return per_block([index in targets for index in range(len(run.text))], measured)


def _state(measured: Measured, blocks: list[int] | None, total: int) -> str:
    names = [f"`{name}`" for name in measured.get("arguments") or []]
    way = f" in their argument{'s' if names[1:] else ''} {' and '.join(names)}" if names else ""
    size = phrase(measured, "largest_change", " by up to {:g} of their size")
    return (
        f"Outputs of {some(blocks or [], total)} depend on other blocks beside the stream{way}: noise in what another "
        f"block takes moves them{size} though their own stream is held as it was."
    )


def _indices(measured: Measured, blocks: list[int] | None, total: int) -> str:
    last = measured.get("last_that_chooses")
    whose = "the last block before it that chooses by its own stream" if last else "another block"
    return (
        f"A query on {some(blocks or [], total)} sees the keys that {whose} chose: noise in what that block takes "
        "changes which keys are seen, though the stream here is held as it was."
    )


QUIRKS = (
    Quirk("handed-state", "State beside the stream", "text", handed_state, _state),
    Quirk("shared-indices", "Shared choice of keys", "text", shared_indices, _indices),
)
