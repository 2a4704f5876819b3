"""The table of what a mixture's router gives and its experts take, by position."""

from __future__ import annotations

from probe.render.answers import Lookup
from probe.render.know.subject import Subject, code, say
from probe.render.text import figure, prose

NAMES = ("router_logits", "expert_weights", "expert_indices")


def routing(subject: Subject) -> Lookup | None:
    """Where each of the router's values stands, and the numbers of experts and of those chosen, which are not one."""
    rows = []
    for value in subject.record.values:
        if value.name not in NAMES or value.hf is None or not subject.value(value.host, value.name):
            continue
        side = {"in": "arguments", "out": "return", "op": "forward"}[value.hf.side]
        at = "{path}, {side}"
        if value.hf.side == "op":
            at += ": {element}"
        elif value.hf.element is not None:
            at += ", position {element}"
        held = subject.measured(value).hf
        view = code(held.held.view) if held and held.held and held.held.view else "as it is"
        place = say(at, path=code(value.hf.path), side=side, element=code(value.hf.element))
        dims = say("[{dims}]", dims=", ".join(value.dims))
        rows.append([subject.link(value), place, dims, say("{view}", view=view)])
    if not rows:
        return None
    counts = {
        name: sorted({shape.sizes[name] for shape, _ in subject.shapes() if name in shape.sizes})
        for name in ("num_experts", "top_k")
    }
    lead = "Two numbers that are easily taken for each other: {experts} experts in all, {chosen} chosen for a token."
    if not all(counts.values()):
        lead = "Positions count from 0."
    parts = {name: " or ".join(map(figure, numbers)) for name, numbers in counts.items()}
    words = prose(lead).format(experts=parts["num_experts"], chosen=parts["top_k"])
    return Lookup("l-router", "The router by position", words, ["value", "PyTorch", "layout", "view"], rows)
