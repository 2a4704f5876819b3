"""What the wiring of the contributions means for ablation, steering and attribution."""

from __future__ import annotations

import re
from itertools import pairwise

from markupsafe import Markup

from probe import names
from probe.render.know.adding import BETWEEN, factors_of_sums, factors_of_terms
from probe.render.know.heads import root_of_width, shared_heads
from probe.render.know.subject import BLOCK, Subject, code, listing, many, of_run, say, within
from probe.render.know.terms import Term, host_of, terms
from probe.render.text import prose
from probe.render.trunk import met
from probe.schema import Shape

NAME = re.compile(r"[\w.\[\]]+")
STREAM = "layers[i].input"
"""What enters a block, in the record's sums."""


def consequences(subject: Subject) -> list[Markup]:
    found = terms(subject)
    return [
        *_sum(subject),
        *_restarted(subject),
        *_normed(subject, found),
        *_holding_the_stream(subject),
        *_gated(subject),
        *_order(subject),
        *_answered(subject, found),
        *_last_stream(subject, found),
        *_centring(subject),
        *shared_heads(subject),
        *root_of_width(subject),
        *_gradients(subject),
        *_biases(subject),
        *_rewritten(subject),
    ]


def _biases(subject: Subject) -> list[Markup]:
    """What single heads and neurons have no part in."""
    fact = subject.fact("last_biases")
    if fact is None:
        return []
    return [of_run(subject, fact.statement) if many(fact, "blocks") else prose(fact.statement)]


def _gradients(subject: Subject) -> list[Markup]:
    """The modules whose return no gradient of the logits arrives at."""
    fact = subject.fact("no_gradient")
    return [prose(fact.statement)] if fact else []


def _rewritten(subject: Subject) -> list[Markup]:
    """The modules whose return is another once the forward has ended."""
    rows = dict.fromkeys(row.path for row in subject.record.returned if row.rewritten)
    if not rows:
        return []
    text = (
        "What {modules} {returns} is written to in place afterwards: a hook that keeps the tensor, and no {clone} of "
        "it, has other numbers when the forward ends."
    )
    returns = "return" if len(rows) > 1 else "returns"
    return [say(text, modules=listing([code(row) for row in rows]), returns=returns, clone=code("clone()"))]


def _sum(subject: Subject) -> list[Markup]:
    """Whether the stream is its first state plus all contributions."""
    found = subject.identities("block sum")
    terms_of = [_plain(identity.expression) for identity in found]
    if not found or not all(terms_of) or not subject.identities(BETWEEN) or not subject.identities("final norm"):
        return []
    known = {f"{sub.host}.{sub.contribution}".lstrip(".") for shape, _ in subject.shapes() for sub in shape.sublayers}
    more = list(dict.fromkeys(term for each in terms_of for term in each[1:] if term not in known))
    text = (
        "Nothing scales or norms the stream between its adds; every block equals its sum {error}. The last stream is "
        "what entered block 0 plus all contributions{more}: leaving one out is setting it to zero, and attribution by "
        "contributions is exact up to the final norm."
    )
    error = within(max(identity.max_abs_error for identity in found))
    return [say(text, error=error, more=say(" and {names}", names=listing([code(m) for m in more])) if more else "")]


def _plain(expression: str) -> list[str]:
    """The terms of a sum that begins with the stream and has names only; empty for any other expression."""
    parts = expression.partition(" == ")[0].split(" + ")
    return parts if parts[0] == STREAM and all(NAME.fullmatch(part) for part in parts) else []


def _restarted(subject: Subject) -> list[Markup]:
    """Blocks whose output has what entered them in no term of its own."""
    mine = [
        block
        for shape, blocks in subject.shapes()
        if STREAM not in shape.identity and shape.identity.endswith("== layer_output")
        for block in blocks
    ]
    if not mine:
        return []
    text = (
        "On {where} the stream starts anew: what leaves the block is the sum of its own contributions without what "
        "entered it, so that a vector added before it does not pass straight through."
    )
    return [say(text, where=subject.among(mine))]


def _normed(subject: Subject, found: list[Term]) -> list[Markup]:
    mine = [term for term in found if term.place == "norm" and term.sublayer.host]
    if not mine:
        return []
    names = subject.links([term.value for term in mine])
    modules = listing(list(dict.fromkeys(code(term.module or term.sublayer.host) for term in mine)))
    text = (
        "Making the return of {modules} larger or smaller does little, since a norm after it sets the size: steer "
        "and ablate at {names}. The share of one head, neuron or expert in them goes through that norm as well."
    )
    return [say(text, modules=modules, names=names)]


def _holding_the_stream(subject: Subject) -> list[Markup]:
    found = subject.quirks.get("residual-inside-module")
    if found is None:
        return []
    text = (
        "On {where} what {modules} {returns} is the stream with a contribution added: setting it to zero removes the "
        "whole stream, and patching it from another run brings that run's stream along."
    )
    held = subject.measured_numbers(found.slug).get("modules")
    named = [code(str(name)) for name in held] if isinstance(held, list) else []
    modules, returns = listing(named) if named else "a sublayer's module", "return" if len(named) > 1 else "returns"
    return [say(text, where=subject.where(found.blocks), modules=modules, returns=returns)]


def _order(subject: Subject) -> list[Markup]:
    """Whether the MLP sees an edit of the attention in the same block."""
    found = subject.quirks.get("parallel-blocks")
    if found is None:
        return []
    text = (
        "On {where} attention and MLP read the same point of the stream: an edit of the one's contribution does not "
        "reach the other's in the same block{between}."
    )
    lens = names.same("layer_mid", "TransformerLens")
    lacking = f", and there is no stream between them (no `layer_mid`, TransformerLens's `{lens}`)"
    between = "" if subject.value(BLOCK, "layer_mid") else lacking
    return [say(text, where=subject.where(found.blocks), between=prose(between))]


def _answered(subject: Subject, found: list[Term]) -> list[Markup]:
    """That a later sublayer of the same block reads what an earlier one added."""
    earlier: dict[Markup, None] = {}
    later: dict[Markup, None] = {}
    links = {(term.value.host, term.value.name): subject.link(term.value) for term in found}
    for shape, _ in subject.shapes():
        for before, after in pairwise(_steps(shape, links)):
            earlier |= dict.fromkeys(before)
            later |= dict.fromkeys(after)
    if not earlier:
        return []
    text = (
        "Within a block {later} {are} computed from the stream with {earlier} already in it: an edit of {edited} moves "
        "the block's output by itself and through {after}."
    )
    both = earlier.keys() & later.keys()
    return [
        say(
            text,
            later=listing([*later]),
            are="is" if len(later) == 1 else "are",
            earlier=listing([*earlier]),
            edited="an earlier one" if both or len(earlier) > 1 else listing([*earlier]),
            after="the later ones" if both or len(later) > 1 else listing([*later]),
        )
    ]


def _steps(shape: Shape, links: dict[tuple[str, str], Markup]) -> list[list[Markup]]:
    """The block's contributions in order; those that read one point of the stream together."""
    steps: list[list[Markup]] = [[]]
    for sub in shape.sublayers:
        if link := links.get((host_of(sub), sub.contribution)):
            steps[-1].append(link)
        if not sub.parallel_with_next:
            steps.append([])
    return [step for step in steps if step]


def _gated(subject: Subject) -> list[Markup]:
    """That lanes take a contribution up by gates, which differ from run to run."""
    if "hyper-connections" not in subject.quirks:
        return []
    text = (
        "What the lanes take up is mixed and multiplied by what the block computes from them, so a contribution has no "
        "fixed weight: attribution by contributions holds for the one run that its gates come from."
    )
    return [say(text)]


def _last_stream(subject: Subject, found: list[Term]) -> list[Markup]:
    """The weight of a term in the stream after the last block."""
    if subject.holds("post-ln", range(subject.total)):
        text = (
            "Each add is followed by a norm, so the last stream is no sum of contributions: the share of an early "
            "block shrinks or grows with all that comes after it."
        )
        return [say(text)]
    said = []
    if scaled := factors_of_terms(subject, found):
        text = "In attribution a contribution counts as it is added: {scaled}."
        lanes = "hyper-connections" in subject.quirks
        if not lanes and not any(met(shape) for shape, _ in subject.shapes()) and subject.identities(BETWEEN):
            text = (
                "Nothing scales or norms the stream itself between its adds, so in attribution a contribution counts "
                "as it is added: {scaled}."
            )
        said.append(say(text, scaled=scaled))
    if sums := factors_of_sums(subject):
        text = (
            "A contribution is multiplied by its own block's {factor} and by that of every later block before the "
            "final norm reads it."
        )
        said.append(say(text, factor=listing([code(name) for name in sums])))
    elif scaling := [block for shape, blocks in subject.shapes() if _is_scaled(shape) for block in blocks]:
        text = (
            "On {where} the stream itself is multiplied, so a contribution counts in the last stream with the product "
            "of all later factors."
        )
        said.append(say(text, where=subject.among(scaling)))
    return said


def _is_scaled(shape: Shape) -> bool:
    return any(each.kind == "factor" for each in met(shape))


def _centring(subject: Subject) -> list[Markup]:
    """Whether what writes to the stream may be centred: whether the norms that read it lose a constant."""
    found = next((e for e in subject.record.experiments if e.slug == "layernorm"), None)
    if found is None or found.verdict not in ("yes", "no"):
        return []
    if found.verdict == "no":
        return [
            say(
                "No norm of the blocks subtracts the mean, so centring the weights that write to the stream makes "
                "another model of it."
            )
        ]
    blocks = found.blocks or []
    if len(blocks) < subject.total or "post-ln" in subject.quirks:
        return []
    text = (
        "The norms of the blocks subtract the mean, so centring the weights that write to the stream changes nothing "
        "that a norm of a block reads."
    )
    return [say(text)]
