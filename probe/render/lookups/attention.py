"""Tables about the attention: whose keys and values a block takes, and which part of a weight is which head's."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.machinery import stored
from probe.render.know.subject import Subject, code, listing, say
from probe.render.text import block_list, prose
from probe.schema import Weight

NAMES = {
    "attention_queries": "queries",
    "attention_keys": "keys",
    "attention_values": "values",
    "attention_output": "output",
    "expert_outputs": "expert",
}


def borrowing(subject: Subject) -> Lookup | None:
    """The blocks that take another block's keys and values, by the block that they take them from.

    A run found for every borrower the last earlier block of its layer type that projects keys and values; by that rule
    the table of a checkpoint that was only built is made as well.
    """
    found = subject.quirks.get("borrowed-kv")
    behind = next((e for e in (subject.run.experiments if subject.run else []) if e.slug == "borrowed-kv"), None)
    if found is None or not found.blocks or behind is None or not behind.measured.get("last_of_its_kind"):
        return None
    kinds = subject.record.layer_types
    served: dict[int, list[int]] = {}
    for block in found.blocks:
        own = [i for i in range(block) if kinds[i] == kinds[block] and i not in found.blocks]
        if not own:
            return None
        served.setdefault(own[-1], []).append(block)
    measured = found.measured.get("lenders")
    if measured is not None and measured != sorted(served):
        return None
    rows = [
        [code(f"layers[{lender}]"), code(kinds[lender]), Markup(block_list(blocks))]
        for lender, blocks in sorted(served.items())
    ]
    head = ["keys and values of", "layer type", "serve blocks"]
    return Lookup("l-borrowing", "Borrowed keys and values", prose(found.statement or ""), head, rows)


def projections(subject: Subject) -> Lookup | None:
    """The weights of the attentions with the axis that heads lie on, and the slice of one head."""
    rows = [_weight(subject, weight) for weight in subject.record.weights]
    if not rows:
        return None
    lead = prose(
        "`h` counts the heads that have a part of their own: those of queries, or the fewer ones of keys and values; "
        "on stacked experts it counts these. What a row tells was found by gradients from each head to the weight"
        + ("." if subject.standing.ran else ", on the twin; the numbers are this checkpoint's own sizes.")
    )
    lead = Markup(" ").join([lead, *stored(subject)])
    head = ["weight", "shape", "heads on it", "part of h", "blocks"]
    return Lookup("l-projections", "Weights by head and expert", lead, head, rows)


def _weight(subject: Subject, weight: Weight) -> list[Markup]:
    if weight.layout:
        heads = say("axis {axis}: {words}", axis=weight.axis, words=weight.layout)
    else:
        heads = prose(weight.statement)
    parts = [
        say("{kind} {part}", kind=NAMES.get(name, name), part=code(weight.parts[name]))
        for name in weight.yields
        if name in weight.parts and (weight.layout or weight.parts[name] != "[:]")
    ]
    shape = code(str(weight.shape))
    return [code(weight.path), shape, heads, listing(parts), Markup(subject.where(weight.blocks))]
