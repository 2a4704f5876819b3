"""Snippets by this project's names.

A value is copied, since a model may go on to write into the tensor.
"""

from __future__ import annotations

from probe.render.recipes.place import Place

TRACE = "with torch.no_grad(), model.trace(inputs):"


def read(at: Place) -> str:
    value = f"{at.host}.{at.name}"
    saved = f"nnsight.save({value})" if at.view and at.view.startswith("list(") else f"{value}.clone().save()"
    return f"{TRACE}\n    value = {saved}"


def edit(at: Place) -> str:
    return "\n".join([TRACE, f"    {at.host}.{at.name}{at.change}", "    logits = model.logits.save()"])
