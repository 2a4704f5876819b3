"""A value's place as the snippets write it: path with a block's index, location inside, and the view with numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probe.render.know.subject import modules
from probe.render.standing import Standing
from probe.schema import PASSES, Record, Shape, Value, Vision

GROUP = re.compile(r"unflatten\((\d+), \(([^)]*)\)\)")
VIEW = re.compile(r"tensor(\.(unflatten|flatten|squeeze|permute)\([^.]*\))*")
CALLED = ("batch", "seq")
SERVED = ("input", "inputs", "output", "source")
SAME = {"query": "seq", "key": "seq"}
"""Dims of a pattern without a cache."""


@dataclass(frozen=True)
class Place:
    """Where a value is on one block.

    Attributes:
        host: expression for the host under its standard names, from ``model``.
        name: the value's.
        path: native path, for ``get_submodule``.
        location: what follows the module in the machine form: a side with its index, or operations and a side.
        side: ``in``, ``out`` or ``op``.
        view: the value as an expression on ``tensor``, ``kwargs`` and ``config``; None where there is none.
        counted: whether the view speaks of ``batch`` and ``seq``.
        passes: for an operation in a loop, which of its passes the value is of: ``the last time``, ...
        tupled: whether the tensor may stand first in a tuple or a list, by the version of transformers or with a cache.
        change: what an edit of a contribution does, after the value: at a text's last position, or at every image's
            first patch.
    """

    host: str
    name: str
    path: str
    location: str
    side: str
    view: str | None
    counted: bool
    passes: str
    tupled: bool
    change: str

    @property
    def operation(self) -> str:
        """The operation inside a forward, outermost last as a reader says it; empty for a module's side."""
        steps = [step for step in self.location.partition("[")[0].split(".")[:-1] if step != "source"]
        return " inside ".join(reversed(steps))

    def expression(self, tensor: str) -> str:
        """The value as a view of a tensor, or made from it."""
        assert self.view is not None
        return re.sub(r"\bconfig\b", "model.config", re.sub(r"\btensor\b", lambda _: tensor, self.view))

    def copied(self, tensor: str) -> str:
        """The value for keeping: a copy where it is a view, since the model may go on to write into the tensor."""
        written = self.expression(tensor)
        return written if self.made else f"{written}.clone()"

    @property
    def made(self) -> bool:
        """Whether the value is computed and no view."""
        return self.view is not None and VIEW.fullmatch(self.view) is None

    @property
    def counts(self) -> list[str]:
        """The line that a view with ``batch`` and ``seq`` stands on."""
        return ['batch, seq = inputs["input_ids"].shape'] if self.counted else []


def place(standing: Standing, value: Value) -> Place:
    """The place of a served value on the first block that has it."""
    assert value.hf is not None and value.location is not None
    block = value.blocks[0] if value.blocks else 0
    measured = value if value.hf.held or value.reads is not None else standing.twin_value(value) or value
    held = measured.hf.held if measured.hf else None
    view = "tensor" if held is None else held.view
    sizes = _sizes(standing.record, value, block)
    return Place(
        host=_expression(value.host.removeprefix("model").lstrip("."), block),
        name=value.name,
        path=value.hf.path.replace("{i}", str(block)),
        location=_inside(value.location),
        side=value.hf.side,
        view=None if view is None else GROUP.sub(lambda match: _numbers(match, sizes), view),
        counted=view is not None and any(_counted(match[2]) for match in GROUP.finditer(view)),
        passes=", ".join(PASSES[each] for each in value.passes),
        tupled=(value.name == "layer_output" and value.location in ("output", "output[0]"))
        or (value.name == "recurrence_output" and value.location.endswith(".output")),
        change=_change(standing, value),
    )


def handed_out(standing: Standing, value: Value) -> Place | None:
    """A contribution's place on the module that was seen to return its numbers, perhaps with all tokens on one axis;
    None where none was.
    """
    at = place(standing, value)
    block = value.blocks[0] if value.blocks else 0
    for row in standing.record.returned:
        for element in row.elements:
            if element.value == f"{value.host}.{value.name}" and block in (row.blocks or []):
                index = "" if element.position is None else f"[{element.position!r}]"
                view = "tensor.flatten(0, -2).unflatten(0, (batch, seq))"
                path = row.path.replace("{i}", str(block))
                return replace(at, path=path, location=f"output{index}", side="out", view=view, counted=True)
    return None


def _part(record: Record, value: Value) -> Record | Vision | None:
    """The half of a record that a value is of."""
    return record.vision if value.host.startswith("model.vision") else record


def is_added(record: Record, value: Value) -> bool:
    """Whether a value is what a sublayer adds to its stack's stream."""
    part = _part(record, value)
    _, block, host = value.host.partition("layers[i]")
    sublayers = [sublayer for shape in (part.shapes if part else []) for sublayer in shape.sublayers]
    added = {(f".{sublayer.host}".rstrip("."), sublayer.contribution) for sublayer in sublayers}
    return bool(block) and (host, value.name) in added


def narrowest(record: Record, values: Sequence[Value]) -> int | None:
    """The smallest width of what the sublayers add; None where no run measured it."""
    return min((value.shape[-1] for value in values if value.shape and is_added(record, value)), default=None)


def _change(standing: Standing, value: Value) -> str:
    """What follows the value in an edit; what is wider than the other contributions takes the vector several times."""
    at, vector = ("0", "vision_vector") if value.host.startswith("model.vision") else ("-1", "vector")
    run = standing.run
    measured = value if standing.ran else standing.twin_value(value)
    part = _part(run, value) if run else None
    if run and part and measured and measured.shape and is_added(run, measured):
        times = measured.shape[-1] // (narrowest(run, part.values) or measured.shape[-1])
        vector += f".repeat({times})" if times > 1 else ""
    return f"[:, {at}] += {vector}"


def _expression(path: str, block: int = 0) -> str:
    """A dotted path as attributes and indices of ``model``."""
    steps = path.replace("[i]", f".{block}").split(".") if path else []
    return "model" + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)


def native(path: str) -> str:
    """The native path as nnsight follows it: a module that is called like one of its own sides has another name."""
    return _expression(".".join(f"E_{step}" if step in SERVED else step for step in path.split(".") if step))


def _inside(location: str) -> str:
    """A location without the modules that lead to its last one."""
    return location.removeprefix(".".join([*modules(location), ""]))


def _sizes(record: Record, value: Value, block: int) -> dict[str, int]:
    if value.host.startswith("model.vision"):
        if record.vision is None:
            return record.sizes
        return record.vision.sizes | _shape(record.vision.shapes, record.vision.blocks, block)
    return record.sizes | _shape(record.shapes, record.blocks, block)


def _shape(shapes: list[Shape], blocks: list[int], block: int) -> dict[str, int]:
    return shapes[blocks[block]].sizes if block < len(blocks) else {}


def _names(group: str) -> list[str]:
    return [SAME.get(name.strip(), name.strip()) for name in group.split(",")]


def _counted(group: str) -> bool:
    return any(name in CALLED for name in _names(group))


def _numbers(match: re.Match[str], sizes: dict[str, int]) -> str:
    """An ``unflatten`` with numbers for names; one that no size gives is left to PyTorch."""
    names = [name if name in CALLED else str(sizes.get(name, -1)) for name in _names(match[2])]
    return f"unflatten({match[1]}, ({', '.join(names)}))"
