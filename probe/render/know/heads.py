"""Query heads and the keys they read: which head of keys serves which of queries, and what scales the scores."""

from __future__ import annotations

import math

from markupsafe import Markup

from probe.render.know.subject import Subject, code, listing, say
from probe.render.text import figure, prose
from probe.schema import Fact

CLOSE = 5e-3
"""How near a number is to one over a root, relative to it, to be told as that: carried factors have three digits."""


def shared_heads(subject: Subject) -> list[Markup]:
    """How many query heads an edit of one key or value head reaches, and which."""
    heads, shared = subject.record.sizes.get("num_heads"), subject.record.sizes.get("num_kv_heads")
    if not heads or not shared or "per-block-sizes" in subject.quirks:
        return []
    if "multi-query" in subject.quirks:
        return [say("All {n} query heads share one head of keys and values: an edit of it reaches every one.", n=heads)]
    if "grouped-query" not in subject.quirks or heads % shared:
        return []
    text = "An edit of one key or value head reaches {n} query heads: {heads} share {shared}.{order}"
    return [say(text, n=heads // shared, heads=heads, shared=shared, order=_order(subject, heads // shared))]


def _order(subject: Subject, each: int) -> Markup | str:
    """Which query heads one head of keys serves: the sums that hold were made with neighbours sharing a head."""
    sums = [name for name in ("scores", "head outputs") if subject.identities(name)]
    if len(sums) < 2:
        return ""
    text = " Query head h reads head {index} of keys and values: in this order the identities {sums} hold."
    return say(text, index=code(f"h // {each}"), sums=listing([code(name) for name in sums]))


def root_of_width(subject: Subject) -> list[Markup]:
    """That scores are divided by the root of the heads' width, where a run found that factor on every block."""
    found = [fact for fact in subject.facts if fact.name.startswith("score_scale")]
    width = subject.record.sizes.get("qk_head_dim") or subject.record.sizes.get("head_dim")
    if not found or any("one_over_root_of" not in fact.measured for fact in found) or not width:
        return []
    return [say("Scores are q·k times 1/√{width}, one over the root of the heads' width.", width=width)]


def scaled_scores(subject: Subject) -> list[Markup]:
    """Factors of the scores other than one over the root of the heads' width, and those that queries and keys bring."""
    return [*_carried(subject), *_scales(subject)]


def _carried(subject: Subject) -> list[Markup]:
    """What queries and keys are times what their projections give, where a run found one number for it."""
    found = subject.measured_numbers("unscaled-scores")
    sides = {name: found.get(f"{name}_carry") for name in ("queries", "keys")}
    numbers = {name: value for name, value in sides.items() if isinstance(value, (int, float))}
    if not numbers or not subject.run:
        return []
    if len(numbers) == 2 and len({*numbers.values()}) == 1:
        if subject.fact("rotary_length"):
            return []  # the module that turns them was found to do it
        [value] = {*numbers.values()}
        text = (
            "`attention_queries` and `attention_keys` are each {value} times as long as what their projections give, "
            "so that scores are {both} times those of the projected ones."
        )
        return [_of_twin(subject, say(text, value=figure(value), both=figure(round(value**2, 2))))]
    width = _width(subject)
    return [
        _of_twin(
            subject,
            say(
                "{name} are {value} times as long as what their projection gives{root}: they carry a factor of the "
                "scores already.",
                name=code(f"attention_{name}"),
                value=figure(value),
                root=f", which is 1/√{width}" if width and math.isclose(value, width**-0.5, rel_tol=CLOSE) else "",
            ),
        )
        for name, value in numbers.items()
    ]


def _scales(subject: Subject) -> list[Markup]:
    found = [fact for fact in subject.facts if fact.name.startswith("score_scale")]
    odd = [fact for fact in found if "one_over_root_of" not in fact.measured]
    if not odd or "unscaled-scores" in subject.quirks:
        return []
    if len({fact.label for fact in odd}) == len(odd):
        return [_of_twin(subject, prose(_with_root(subject, fact))) for fact in odd]
    numbers = listing([figure(fact.value) for fact in odd])
    return [say("The scores are q·k times another factor from block to block: {numbers}.", numbers=numbers)]


def _with_root(subject: Subject, fact: Fact) -> str:
    """The fact's sentence, with the factor as a multiple of 1/√width where no entry of the config is the factor."""
    width = _width(subject)
    named = any(_is(row.value, fact.value) for row in subject.run.config) if subject.run else True
    if not width or named or fact.value == 1:
        return fact.statement
    return f"{fact.statement.removesuffix('.')}: {fact.value * width**0.5:.4g} times 1/√{width}."


def _is(entry: object, value: float) -> bool:
    """Whether a config's entry is a factor, or the width of which it is one over the root."""
    if isinstance(entry, bool) or not isinstance(entry, (int, float)) or entry <= 0:
        return False
    return any(math.isclose(value, way, rel_tol=1e-3) for way in (entry, entry**-0.5))


def _width(subject: Subject) -> int | None:
    sizes = subject.run.sizes if subject.run else {}
    return sizes.get("qk_head_dim") or sizes.get("head_dim")


def _of_twin(subject: Subject, sentence: Markup) -> Markup:
    """A sentence with a number that depends on sizes: where only the twin ran, as the twin's, with its size."""
    if subject.run is None or subject.run is subject.record:
        return sentence
    width = _width(subject)
    lead = say("On the twin{heads}, ", heads=f", whose queries are {width} wide" if width else "")
    return lead + (sentence if sentence.startswith("<") else Markup(sentence[:1].lower() + sentence[1:]))
