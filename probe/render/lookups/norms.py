"""The table of norms: what each one's value is, whether its gain is in it, and what the gain is."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.subject import BLOCK, Subject, say
from probe.render.lookups.stream import place
from probe.render.text import prose
from probe.schema import Value

NORMS = ((BLOCK, "attention_norm_output"), (BLOCK, "mlp_norm_output"), ("model", "final_norm_output"))


def norms(subject: Subject) -> Lookup | None:
    """For each norm of the stream its value, and whether that is with the gain."""
    values = [value for value in (subject.value(host, name) for host, name in NORMS) if value and value.hf]
    if not values:
        return None
    rows = [[subject.link(value), place(value), _included(value), _gain(subject, value)] for value in values]
    lead = prose(
        "A norm's output is what its module returns, gain and bias included; tools that name the quotient before "
        "them mean another tensor. What the gain is was found by calling the norms with weights of zero and one."
    )
    lead += _root(subject)
    return Lookup("l-norms", "Norms and their gain", lead, ["value", "PyTorch", "gain included", "gain"], rows)


def _root(subject: Subject) -> Markup:
    """What the norms add under their root; where only the twin ran, with the checkpoint's own entry for it."""
    fact = subject.fact("norm_epsilon")
    if fact is None:
        return Markup("")

    def own(found: re.Match[str]) -> str:
        value = subject.config(found[2])
        return f"{value:g}, `{found[2]}`," if isinstance(value, float) else found[0]

    return Markup(" ") + prose(re.sub(r"(\S+), `(\w+)`,", own, fact.statement))


def _included(value: Value) -> Markup:
    told = value.hf is not None and value.hf.side == "out"
    return Markup("yes, it is the module's return" if told else "not told: it is no module's return")


def _gain(subject: Subject, value: Value) -> Markup:
    """What multiplies, as calls of the norms found it."""
    if value.host != BLOCK:
        found = subject.fact("final_norm_gain")
        if found is None:
            return Markup("not examined")
        return prose("none" if "no weight" in found.statement else "`1 + weight`" if found.value else "`weight`")
    verdicts = {e.slug: e for e in subject.record.experiments}
    gain, without = verdicts.get("gain-norm"), verdicts.get("weightless-norms")
    parts = []
    if without and without.verdict == "yes":
        parts.append(say("none on {where}", where=subject.where(without.blocks)))
    if gain and gain.verdict == "yes":
        parts.append(say("`1 + weight` on {where}", where=subject.where(gain.blocks)))
    elif gain and gain.verdict == "no":
        parts.append(prose("`weight`"))
    return Markup("; ").join(parts) or prose((gain.statement if gain else None) or "not known")
