"""A snippet for every value, in three forms: this project's names, nnsight alone, hooks of plain PyTorch.

All three are written from the record's row. A snippet reads the value on the first block that has it into ``value``;
that of a contribution can also be an edit, which adds ``vector`` at the last position, or ``vision_vector`` at every
image's first patch, and leaves the ``logits``. What they stand on, ``model``, ``inputs`` and the vectors, a set-up
makes once a page (see :mod:`.setup`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probe.render.places import is_served
from probe.render.recipes import hooks, names, traced
from probe.render.recipes.place import Place, handed_out, is_added, place
from probe.render.standing import Standing
from probe.schema import Value

Form = Literal["names", "nnsight", "pytorch"]

FORMS: dict[Form, str] = {"names": "this project", "nnsight": "nnsight", "pytorch": "PyTorch"}

Lack = Literal["one pass of several", "no single expression", "inside a forward"]
"""Why a form cannot read a value."""


@dataclass(frozen=True)
class Recipe:
    """One form's snippets. ``read`` and ``edit`` are None where the form has none; ``why`` says so for ``read``, and
    ``lack`` in short.
    """

    form: Form
    read: str | None
    edit: str | None
    why: str | None = None
    lack: Lack | None = None


def recipes(standing: Standing, value: Value) -> list[Recipe]:
    """The three forms of a value's snippet, with the edit where the value is what a sublayer adds; none for a value
    that the checkpoint does not serve.
    """
    if not is_served(value) or value.hf is None:
        return []
    at = place(standing, value)
    added = is_added(standing.record, value)
    return [
        Recipe("names", names.read(at), names.edit(at) if added else None),
        _or_why("nnsight", at, traced.read(at), traced.edit(at) if added else None),
        _hooked(at, handed_out(standing, value) if added else None, added),
    ]


def _hooked(at: Place, out: Place | None, added: bool) -> Recipe:
    """By hooks where the value is; or, where no hook gets there, on the module that returns its numbers.

    Args:
        out: the place of that module, for a contribution.
    """
    if out is not None and not at.passes and (hooks.read(at) is None or hooks.edit(at) is None):
        at = out
    return _or_why("pytorch", at, hooks.read(at), hooks.edit(at) if added else None)


def _or_why(form: Form, at: Place, read: str | None, edit: str | None) -> Recipe:
    if at.passes:
        why = f"It is what {at.operation} gives {at.passes}; this form would give its first pass."
        return Recipe(form, None, None, why, "one pass of several")
    if read is not None:
        return Recipe(form, read, edit)
    if at.view is None:
        why = "No single expression makes the value from the tensor that is there."
        return Recipe(form, None, None, why, "no single expression")
    why = f"No hook gets it: it is made by {at.operation} inside the forward of {at.path or 'the model'}."
    return Recipe(form, None, None, why, "inside a forward")
