"""Tables of a mixture: where its router's values stand, what the router returns, and how it comes to its weights."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.subject import Subject, code, say, with_groups
from probe.render.lookups.modules import element
from probe.render.standing import error_text
from probe.render.text import figure, prose
from probe.schema import Returned

NAMES = ("router_logits", "expert_weights", "expert_indices")
STEPS = (("router", NAMES[0]), ("expert choice", NAMES[2]), ("expert weights", NAMES[1]))
"""Identities of a mixture, and the value that each gives."""


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


def routers(subject: Subject) -> Lookup | None:
    """What the module returns that gives the router's logits or its choice: each position, and what it is."""
    rows = [
        [code(row.path), code(part.position), element(subject, part), Markup(subject.where(row.blocks))]
        for row in subject.record.returned
        if row.type != "Tensor" and _routes(row)
        for part in row.elements
    ]
    if not rows:
        return None
    lead = prose("Unpack by position: weights and indices have one entry for each chosen expert, logits one for each.")
    head = ["module", "position", "holds", "blocks"]
    return Lookup("l-router-returns", "What the router returns", lead, head, rows)


def _routes(row: Returned) -> bool:
    """Whether two or more positions of what a module returns are of the router."""
    found = [part for part in row.elements if part.made or (part.value or "").rpartition(".")[2] in NAMES]
    return len(found) > 1


def scoring(subject: Subject) -> Lookup | None:
    """From what the router reads to the weights: the equations that were evaluated, with bias, sigmoid or softmax."""
    rows = []
    for name, value_name in STEPS:
        for found in subject.identities(name):
            equation = with_groups(subject, found.expression)
            rows.append([code(value_name), code(equation), Markup(error_text(found.max_abs_error))])
    if not rows:
        return None
    lead = prose(
        "What stands in the first equation is in the logits; what stands in the others, a bias or a sigmoid or a "
        "softmax, comes after them."
    )
    return Lookup("l-scoring", "From the router to the weights", lead, ["value", "equation", "largest error"], rows)
