"""Whether a lens on the last block gives the model's own logits, and what stands on the way."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.know.subject import Subject, code, of_run, say, within
from probe.render.standing import error_text
from probe.render.text import figure, prose
from probe.schema import Identity, Scalar

ROW = "model"
FACTOR = re.compile(r"[\w.]+ \* ")
"""What an equation begins with whose left side is multiplied."""

SCALED = re.compile(r"\(([\d.]+) \* layers\[-1\]")
"""The number in an equation that multiplies what the last block gave."""


def lens(subject: Subject) -> list[Markup]:
    return [
        *_exact(subject),
        *_entering(subject),
        *_after(subject),
        *_naive(subject),
        *_returned(subject),
        *_capped(subject),
        *_tied(subject),
    ]


def _exact(subject: Subject) -> list[Markup]:
    """The readout of the last block's output, compared with the logits."""
    found, normed = _first(subject, "readout"), _first(subject, "final norm")
    if found and normed and not subject.fact("unkept_head"):
        error = found.max_abs_error
        text = (
            "Yes, it is exact{within}: {chain}, applied to the last block's output, {give} the model's logits "
            "({equation})."
        )
        within_ = "" if error == 0 else f" to within {error_text(error)}"
        chain = _chain(subject)
        give = "give" if " and then " in chain else "gives"
        return [say(text, chain=chain, give=give, within=within_, equation=code(found.expression))]
    if found:
        text = (
            "Yes, by `project_on_vocab`, which gives the model's logits {error}; but more than the final norm and the "
            "head stands between the last block's output and the logits."
        )
        return [say(text, error=within(found.max_abs_error))]
    failed = next((i for i in subject.standing.identities(False) if i.name == "readout"), None)
    if failed:
        text = "No: norm and head on the last block's output miss the model's logits by {error}. {reason}"
        return [say(text, error=error_text(failed.max_abs_error), reason=failed.reason or "")]
    if fact := subject.fact("lens_by_writing"):
        return [prose(f"Yes, though no module does it alone. {fact.statement}")]
    if fact := subject.fact("logits_take_more"):
        return [prose(f"No. {fact.statement}")]
    if fact := subject.fact("unkept_readout") or subject.fact("unkept_final_norm"):
        text = (
            "No: what the head reads is not the last block's output ({error} apart), and nothing was found that makes "
            "the one from the other alone."
        )
        if fact.name == "unkept_readout":
            text = "No: norm and head on the last block's output miss the model's logits by {error}."
        return [say(text, error=error_text(fact.value))]
    if subject.run is None:
        return [say("Whether it is exact was not measured on this checkpoint or on a twin whose record is here.")]
    return [say("No way from the last block's output alone to the model's logits was found in the run.")]


def _chain(subject: Subject) -> Markup:
    """The modules from the last block to the head by their native paths, and what follows them."""
    normed = _first(subject, "final norm")
    scaled = SCALED.search(normed.expression) if normed else None
    steps = [say("a factor {number}", number=scaled[1])] if scaled else []
    for name in _called(normed):
        path = _path(subject, "final_norm_output") or "the final norm" if name == "norm" else code(name)
        steps.append(Markup(path))
    head = _first(subject, "head")
    steps += [Markup("a constant factor")] if head and FACTOR.match(head.expression) else []
    steps += [code(name) for name in _called(head)[:-1]]
    steps.append(Markup(_path(subject, "lm_head_output") or "the head"))
    words = {"scaled-logits": "the scale", "softcapped-logits": "the softcap"}
    steps += [Markup(word) for slug, word in words.items() if slug in subject.quirks]
    return Markup(" and then ").join([Markup(", ").join(steps[:-1]), steps[-1]]) if len(steps) > 1 else steps[0]


def _called(identity: Identity | None) -> list[str]:
    """The modules of an equation such as ``norm(join(x)) == y``, in the order in which they run."""
    return re.findall(r"([\w.]+)\(", identity.expression)[::-1] if identity else []


def _path(subject: Subject, name: str) -> Markup | None:
    """The native path of the module that gives a value of the whole model, where one does."""
    value = subject.value(ROW, name)
    return code(value.hf.path) if value and value.hf and value.hf.side == "out" and value.hf.path else None


def _entering(subject: Subject) -> list[Markup]:
    """A factor between the final norm and the head."""
    found = _first(subject, "head")
    if found is None or not FACTOR.match(found.expression):
        return []
    text = (
        "Between the final norm and the head the stream is multiplied by {what} ({identity}), which a lens of norm "
        "and head alone leaves out."
    )
    return [say(text, what=_factor_words(subject), identity=code(with_factor(subject, found.expression)))]


def _factor_words(subject: Subject) -> Markup:
    """The factor before the head, with the config entries of which it was found to be a quotient."""
    number, fact = head_factor(subject), subject.fact("head_factor")
    entries = [fact.measured.get(key) for key in ("entry", "over")] if fact else []
    if number is None:
        return Markup("a constant")
    if not any(entries):
        return Markup("{}").format(figure(number))
    return say("{number}, {one} / {other}", number=figure(number), one=code(entries[0] or 1), other=code(entries[1]))


def head_factor(subject: Subject) -> float | None:
    """What the head's input is multiplied by on the page's checkpoint: from its config, else as the run measured it
    there; None where neither tells.
    """
    fact = subject.fact("head_factor")
    if fact is None:
        return None
    one, other = (subject.config(str(fact.measured.get(key))) for key in ("entry", "over"))
    one = one if "entry" in fact.measured else 1
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and other:
        return float(f"{one / other:.4g}")
    return fact.value if subject.standing.ran else None


def with_factor(subject: Subject, expression: str) -> str:
    """The head's equation with the factor's number in the place of its letter, where the page's own is known."""
    number = head_factor(subject)
    return expression if number is None else re.sub(r"^c(?= \* )", figure(number), expression)


def _naive(subject: Subject) -> list[Markup]:
    """How far norm and head alone are from the logits, in the run."""
    fact = subject.fact("naive_lens")
    return [of_run(subject, fact.statement)] if fact else []


def _first(subject: Subject, name: str) -> Identity | None:
    return next(iter(subject.identities(name)), None)


def _after(subject: Subject) -> list[Markup]:
    """A softcap or a scale past the head."""
    said = []
    head = subject.value(ROW, "lm_head_output")
    link = subject.link(head) if head else code("lm_head_output")
    equation = say(" ({equation})", equation=code(found)) if (found := past_head(subject)) else ""
    if cap := subject.quirks.get("softcapped-logits"):
        text = (
            "The head's logits pass a tanh{at}{equation}: attribution to {head} is linear, "
            "attribution to the logits is not."
        )
        height = cap.measured.get("cap")
        at = f" at ±{figure(height)}" if height is not None else ""
        said.append(say(text, at=at, equation=equation, head=link))
    if scale := subject.quirks.get("scaled-logits"):
        text = (
            "The head's logits are {verb} by {factor} to give the model's{equation}, so a lens that stops at {head} "
            "gives other probabilities."
        )
        factor, divisor = scale.measured.get("factor"), scale.measured.get("divisor")
        by = divisor if divisor is not None else factor
        verb = "divided" if divisor is not None else "multiplied"
        number = figure(by) if by is not None else "a constant"
        said.append(say(text, verb=verb, factor=number, equation=equation, head=link))
    return said


def past_head(subject: Subject) -> str | None:
    """The logits as an equation of what the head gives, with the measured numbers; None where they are the same."""
    given: dict[str, Scalar | list[Scalar]] = {}
    for slug in ("softcapped-logits", "scaled-logits"):
        given |= subject.quirks[slug].measured if slug in subject.quirks else {}
    if (cap := given.get("cap")) is not None:
        return f"{figure(cap)} * tanh(lm_head_output / {figure(cap)}) == logits"
    if (divisor := given.get("divisor")) is not None:
        return f"lm_head_output / {figure(divisor)} == logits"
    if (factor := given.get("factor")) is not None:
        return f"{figure(factor)} * lm_head_output == logits"
    return None


def _returned(subject: Subject) -> list[Markup]:
    """Which stream `output_hidden_states` gives last."""
    normed = subject.fact("last_hidden_state_is_normed")
    if normed is None:
        return []
    same, blocks = subject.fact("hidden_states_of_blocks"), len(subject.run.blocks) if subject.run else 0
    if normed.value:
        found = _first(subject, "final norm")
        by_norm = found is None or "norm(" in found.expression
        text = (
            "`hidden_states[-1]` has passed the final norm already"
            if by_norm
            else "`hidden_states[-1]` is what the head reads"
        )
        if fact := subject.fact("last_stream_in_hidden_states"):
            return [say(text + "; {where}", where=prose(fact.statement))]
        if same and same.value == blocks - 1:
            return [say(text + "; the last block's `layer_output` is not among the hidden states.")]
        return [say(text + ".")]
    if same and same.value == blocks:
        return [say("`hidden_states[-1]` is the last block's `layer_output`, as a lens takes it.")]
    return [prose(normed.statement)]


def _tied(subject: Subject) -> list[Markup]:
    if "tied-weights" not in subject.quirks:
        return []
    return [say("Head and embedding are one table, so a weight edit of the lens edits the embedding.")]


def _capped(subject: Subject) -> list[Markup]:
    """That a constant added to all logits counts where a cap follows."""
    if "softcapped-logits" not in subject.quirks:
        return []
    text = (
        "A number added to all logits before the cap changes the probabilities, so the unembedding cannot be centred "
        "over the vocabulary."
    )
    return [say(text)]
