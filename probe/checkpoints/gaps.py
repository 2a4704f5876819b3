"""What a load would leave to chance: transformers fills weights that are absent or misshapen at random."""

from __future__ import annotations

from typing import Any

from probe.errors import ProbeError

REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Arguments of ``from_pretrained`` with which it reports every gap in place of stopping at some."""


def refuse_gaps(what: str, info: dict[str, Any]) -> None:
    """Refuse a load that has gaps.

    Args:
        what: the checkpoint, as the sentence names it.
        info: what ``from_pretrained`` reported, called with :data:`REPORTED`.

    Raises:
        ProbeError: a weight is missing, or is of another shape than the config makes it.
    """
    missing, misshapen = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
    if misshapen:
        name, stored, wanted = misshapen[0]
        raise ProbeError(
            f"The weights of {what} do not fit its config ({len(misshapen)}, first {name}: {list(stored)} in the file, "
            f"{list(wanted)} by the config): check both files."
        )
    if missing:
        others = sorted(info["unexpected_keys"])
        also = f", and has others in their place ({len(others)}, first {others[0]})" if others else ""
        raise ProbeError(
            f"{what} lacks weights its class needs ({len(missing)}, first {missing[0]}), which would be filled at "
            f"random{also}: use a checkpoint whose config and weights were saved from the class that generates text."
        )


def said(error: BaseException) -> str:
    """What a library said, on one line, without its pointers to reports that nobody sees here."""
    line = " ".join(str(error).split()).partition(" For details")[0]
    return line[:200]
