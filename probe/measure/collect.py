"""Every identity of a run: the block's sum, the general checks, and those that the family module adds."""

from __future__ import annotations

from ..schema import Identity
from .checks import block_checks, root_checks, vision_checks
from .identities import block_sums, evaluate
from .run import Run


def all_identities(run: Run) -> tuple[list[Identity], list[Identity]]:
    """Every identity of the text model, and of the tower: the general ones, and those of the family module."""
    family = run.model.family
    own = getattr(family, "BLOCK_CHECKS", ())
    text = evaluate(run, run.text, [*block_sums(run.text), *block_checks(run.text), *own, *root_checks(run)])
    if run.vision is None:
        return text, []
    extra = getattr(family, "VISION_CHECKS", ())
    return text, evaluate(
        run, run.vision, [*block_sums(run.vision), *block_checks(run.vision), *extra, *vision_checks(run)]
    )


def unpinned(run: Run) -> set[tuple[str, str]]:
    """The values that were read and that no identity looked at: ``(host, name)``."""
    used = run.used.union(*(stack.used for stack in run.stacks()))
    return {(key.host, key.name) for key in run.readings} - used
