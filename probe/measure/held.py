"""How a model holds a value: the shape of the tensor at its place, and the view that gives the value from it.

A mixture holds its tokens on one axis, an output projection takes its heads side by side. Who reads with a hook of
plain PyTorch gets that tensor, so a record says what to make of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..schema import Held
from ..standard.trace import Key, declared
from ..values.value import StandardValue
from .run import Run

Shape = Sequence[int]


def held_shapes(run: Run) -> Mapping[Key, tuple[int, ...] | None]:
    """Shape of the tensor at the place of each value that the run read.

    Call it before anything else is read through the model, since a host knows the last reading only.
    """
    return {key: host.held_shape(key.name) for key, host, _ in declared(run.model) if key in run.readings}


def held(value: StandardValue, there: Shape | None, shape: Shape | None) -> Held | None:
    """What the record says of the tensor at a value's place; None where it is the value as it is.

    Args:
        value: the declared value.
        there: shape of the tensor at its place; None where that is no tensor.
        shape: shape of the value in the same run.
    """
    if value.formula is not None:
        return Held(shape=None if there is None else list(there), view=value.formula)
    if value.axes is not None and there is not None:
        return Held(shape=list(there), view=value.axes.expression())
    if there is None or shape is None or list(there) == list(shape):
        return None
    return Held(shape=list(there), view=view(there, shape, value.layout.dims))


def view(there: Shape, shape: Shape, dims: Sequence[str]) -> str | None:
    """The expression on ``tensor`` that brings it into the axes ``dims``; None unless one and only one fits.

    Either two neighbouring axes of the value are one in the tensor, or the other way round. With a single row in the
    batch, a tensor without a batch axis is one with batch and sequence folded, and is viewed alike.
    """
    if len(there) == len(shape) - 1:
        fits = _folds(shape, there)
        found = [f"tensor.unflatten({axis}, ({dims[axis]}, {dims[axis + 1]}))" for axis in fits]
    else:
        found = [f"tensor.flatten({axis}, {axis + 1})" for axis in _folds(there, shape)]
    return found[0] if len(found) == 1 else None


def _folds(apart: Shape, folded: Shape) -> list[int]:
    """The axes at which ``apart``, with that axis and the next folded into one, is ``folded``."""
    return [
        axis
        for axis in range(len(apart) - 1)
        if [*apart[:axis], prod(apart[axis : axis + 2]), *apart[axis + 2 :]] == list(folded)
    ]
