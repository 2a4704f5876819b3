"""Snippets by nnsight alone, over the native modules and the operations of their forwards."""

from __future__ import annotations

import re

from probe.render.recipes.names import TRACE
from probe.render.recipes.place import Place, native

FIRST = "if isinstance({name}, (tuple, list)) else {name}"


def read(at: Place) -> str | None:
    """None where no expression makes the value."""
    if at.view is None:
        return None
    return "\n".join([*at.counts, TRACE, *_tensor(at), f"    value = {_saved(at)}"])


def edit(at: Place) -> str | None:
    """None where the value is not a view that can be written into."""
    if at.view is None or at.made:
        return None
    target = at.expression("tensor")
    lines = [
        *at.counts,
        TRACE,
        *_tensor(at),
        f"    {target}{at.change}",
        '    logits = model.output["logits"].save()',
    ]
    return "\n".join(lines)


def _tensor(at: Place) -> list[str]:
    where = f"{native(at.path)}.{at.location}"
    if at.view and "kwargs" in at.view:
        return [f"    kwargs = {native(at.path)}.inputs[1]"]
    if at.tupled:
        whole = where.removesuffix("[0]")
        return [f"    output = {whole}", "    tensor = output[0] " + FIRST.format(name="output")]
    return [f"    tensor = {where}"]


def _saved(at: Place) -> str:
    written = at.copied("tensor")
    if written.startswith("list("):
        return f"nnsight.save({written})"
    return f"({written}).save()" if re.search(r" == ", written) else f"{written}.save()"
