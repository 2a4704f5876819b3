"""What a default load does not give, or gives otherwise."""

from __future__ import annotations

from markupsafe import Markup

from probe.kernels import results
from probe.render.know import kernels
from probe.render.know.subject import Subject, code, many, of_run, say
from probe.render.know.windows import windows
from probe.render.places import is_served
from probe.render.text import lacking, prose
from probe.schema import Fact, Lack, Value

NUMERIC = ("takes_sdpa", "eager_sdpa", "eager_sdpa_padded", "eager_sdpa_padding")
REAL_TOKENS = ("eager_sdpa", "eager_sdpa_padded")
ROUNDING = 1e-2
"""Largest difference of two implementations' logits that the arithmetic of float32 explains."""

CALLS = ("fp32-residual", "batch-mixing", "no-cache", "cached-otherwise", "cache-in-modules")
"""Quirks of how a call goes: what is mixed, kept or held in another dtype."""


def loading(subject: Subject) -> list[Markup]:
    withheld, never = _withheld(subject), _never(subject)
    said = [
        *withheld,
        *_own_arithmetic(subject),
        *_numbers(subject),
        *_padding(subject),
        *_half(subject),
        *windows(subject),
        *_recurrences(subject),
    ]
    return [*said, *(subject.quirk(slug) for slug in CALLS if slug in subject.quirks), *never]


def _withheld(subject: Subject) -> list[Markup]:
    """Values that need another load than the default one, by the reason that a refusal gives."""
    attn = subject.record.checkpoint.attn
    groups: dict[tuple[Lack | None, str], list[Value]] = {}
    for value in subject.record.values:
        if value.needs and value.blocks != []:
            groups.setdefault((value.lack, value.module if value.lack == "another way" else ""), []).append(value)
    if not groups:
        if attn == "eager":
            return [say("A default load is eager, and every value that the page lists as served is read under it.")]
        text = "Nothing is withheld: under the default {attn} every value that the page lists as served is read."
        return [say(text, attn=code(attn))]
    if all(value.needs == attn for values in groups.values() for value in values):
        names = subject.links([value for values in groups.values() for value in values])
        text = "A default load is {attn}, and nothing is withheld; under another attention {names} would be."
        return [say(text, attn=code(attn), names=names)]
    said = []
    for (lack, module), values in groups.items():
        text = "Under the default {attn}, {names} cannot be read{reason}. Load with {eager} for {them}."
        eager = code(f"attn_implementation='{values[0].needs}'")
        them = "it" if len(values) == 1 else "them"
        parts = {"attn": code(attn), "names": subject.links(values), "eager": eager, "them": them}
        said.append(say(text, reason=f": {lacking(lack, module, len(values) > 1)}" if lack else "", **parts))
    return said


def _own_arithmetic(subject: Subject) -> list[Markup]:
    if "own-attention-arithmetic" not in subject.quirks:
        return []
    return [subject.quirk("own-attention-arithmetic", "A function registered there is never called.")]


def _numbers(subject: Subject) -> list[Markup]:
    """How far the logits of the two attention implementations are apart, and what follows where that is no rounding."""
    found = [fact for name in NUMERIC if (fact := subject.fact(name))]
    if len(found) > 1 and not any(fact.value for fact in found):
        return [say("Eager attention and sdpa give the same logits, in a padded batch too.")]
    said = [*(prose(fact.statement) for fact in found), *_apart(subject)]
    return [Markup(" ").join(said)] if said else []


def _apart(subject: Subject) -> list[Markup]:
    """That the two implementations compute different things at real tokens."""
    far = [name for name in REAL_TOKENS if (fact := subject.fact(name)) and fact.value > ROUNDING]
    if not far:
        return []
    where = " in a padded batch" if far == ["eager_sdpa_padded"] else ""
    if subject.record.checkpoint.attn == "eager":
        text = "That is no rounding: under sdpa the model computes something else{where}, so leave it at its default."
    else:
        text = (
            "That is no rounding: a default load and an eager one compute different things{where}, and what is found "
            "under one need not hold under the other."
        )
    return [say(text, where=where)]


def _padding(subject: Subject) -> list[Markup]:
    """What padding on the left changes, and the mask that attentions are handed."""
    return [prose(fact.statement) for name in ("left_padding", "attention_masks") if (fact := subject.fact(name))]


def _half(subject: Subject) -> list[Markup]:
    """What stays float32 in a half-precision load, and where its norms round."""
    found = [fact for name in ("half_dtypes", "norm_rounding") if (fact := subject.fact(name))]
    return [Markup(" ").join(prose(fact.statement) for fact in found)] if found else []


def _recurrences(subject: Subject) -> list[Markup]:
    """Which code runs a recurrence, how far a kernel is from it, what is read inside it, and the states by steps of a
    cache.
    """
    said, told = [], []
    found = results.committed()
    for fact in subject.facts:
        if fact.name.startswith("code_of_"):
            name = fact.name.removeprefix("code_of_")
            inside = [v for v in subject.record.values if is_served(v) and v.code == name]
            text = Markup(" Read inside the PyTorch code, and refused where other code runs: {}.")
            near = Markup(" ") + kernels.beside(subject, name, found) if not fact.value else Markup("")
            told.append(name)
            said.append(prose(fact.statement) + near + (text.format(subject.links(inside)) if inside else Markup("")))
    said += kernels.others(subject, told, found)
    steps = subject.fact("states_by_steps")
    return [*said, *([_by_steps(subject, steps)] if steps else [])]


def _by_steps(subject: Subject, fact: Fact) -> Markup:
    """Whether a cache has a recurrence's states; of some blocks as the run's, whose blocks are others."""
    every = subject.run is not None and len(many(fact, "blocks")) == len(subject.run.blocks)
    return prose(fact.statement) if every else of_run(subject, fact.statement)


def _never(subject: Subject) -> list[Markup]:
    """Values that no load serves although the family has the part, with the reason."""
    groups: dict[str, list[Value]] = {}
    for value in subject.record.values:
        if value.reason and not value.needs and value.location is None:
            groups.setdefault(value.reason, []).append(value)
    said = []
    for reason, values in groups.items():
        text = "No load gives {names}. {reason}"
        said.append(say(text, names=subject.links(values), reason=prose(reason)))
    return said
