"""The identities that a decoder's values should satisfy: of the stream, the attention, the MLP, the mixture, the whole.

None is tied to a family; where families write an equation in different forms, the form that holds is part of what the
check finds.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...standard.stack import Stack
from ..identities import Check
from . import attention, mixer, mixture, mlp, stream
from .attention import fitted_scale
from .parts import HIDDEN
from .root import root_checks, text_positions
from .vision import vision_checks

__all__ = ["HIDDEN", "block_checks", "fitted_scale", "root_checks", "text_positions", "vision_checks"]


def block_checks(stack: Stack) -> Iterator[Check]:
    """Checks over one block, in the order of a forward pass."""
    yield from stream.checks(stack)
    yield from attention.checks(stack)
    yield from mixer.checks(stack)
    yield from mlp.checks(stack)
    yield from mixture.checks(stack)
