"""Tables about the residual stream: hidden states, the terms of the blocks' sum, and the way to the logits."""

from __future__ import annotations

from markupsafe import Markup

from probe import names
from probe.render.answers import Lookup
from probe.render.know.lens import past_head, with_factor
from probe.render.know.subject import Subject, code, of_run, say
from probe.render.know.terms import Term, terms
from probe.render.other_names import loads
from probe.render.standing import error_text
from probe.render.text import prose
from probe.schema import Value


def hidden_states(subject: Subject) -> Lookup | None:
    """Which stream `hidden_states[k]` is, where a run compared them and there is one more of them than blocks."""
    count, same = subject.fact("hidden_states"), subject.fact("hidden_states_of_blocks")
    normed = subject.fact("last_hidden_state_is_normed")
    if count is None or same is None or normed is None or subject.run is None:
        return None
    blocks, last = len(subject.run.blocks), subject.total
    if count.value != blocks + 1 or same.value != blocks - bool(normed.value) or last < 2:
        return None
    first = _lens("layer_input", 0)
    rows = [[code("hidden_states[0]"), code("layers[0].layer_input"), code(_block_side(subject, 0, "input")), first]]
    for k in dict.fromkeys([1, last - 1] if normed.value else [1, last]):
        rows.append(_state(subject, k))
    if normed.value:
        final = subject.value("model", "final_norm_output")
        name = subject.link(final) if final else code("final_norm_output")
        rows.append(
            [
                code(f"hidden_states[{last}]"),
                name,
                place(final) if final else Markup(""),
                _lens("final_norm_output"),
            ]
        )
    lead = prose(
        "Counting starts at what enters block 0, so the output of block i is number i + 1."
        + (" The last block's is not among them: the last number is after the final norm." if normed.value else "")
    )
    head = ["returned", "standard name", "PyTorch", "TransformerLens"]
    columns = len(head) if loads(subject, "TransformerLens") else len(head) - 1
    rows = [row[:columns] for row in rows]
    return Lookup("l-hidden-states", "hidden_states by number", lead, head[:columns], rows)


def _state(subject: Subject, k: int) -> list[Markup]:
    where = _block_side(subject, k - 1, "output")
    place = code(where) if where else Markup("")
    return [
        code(f"hidden_states[{k}]"),
        code(f"layers[{k - 1}].layer_output"),
        place,
        _lens("layer_output", k - 1),
    ]


def _lens(value: str, block: int = 0) -> Markup:
    """What TransformerLens calls a value of the model, or of a block; declared."""
    found = names.same(value, "TransformerLens")
    return code(found.replace("{i}", str(block))) if found else Markup("")


def _block_side(subject: Subject, block: int, side: str) -> str:
    path = subject.block_path
    return f"{path.replace('{i}', str(block))} {side}" if path else ""


def terms_of_the_sum(subject: Subject) -> Lookup | None:
    """For every contribution: the sublayer's module, and what is added in its place."""
    rows = [_term(subject, term) for term in terms(subject)]
    if not rows:
        return None
    lead = Markup("What a sublayer's module returns is not everywhere what the block adds to the stream.")
    if (wrong := subject.fact("returns_as_terms")) is not None:
        lead = Markup("{} {}").format(lead, prose(wrong.statement))
    head = ["contribution", "sublayer's module", "what is added", "blocks", "edit followed within"]
    return Lookup("l-terms", "Module output and contribution", lead, head, rows)


ADDED = {
    "own": "its return{element}",
    "norm": "the output of the norm {giver}",
    "child": "the output of {giver} inside it",
    "beside": "the output of {giver} after it",
    "inside": "a result inside the forward of {giver}: {at}",
}


def _term(subject: Subject, term: Term) -> list[Markup]:
    hf = term.value.hf
    element = f", element {hf.element}" if hf and hf.element is not None else ""
    added = say(ADDED[term.place], giver=code(term.giver), element=element, at=code(hf.element if hf else ""))
    times = say(", times {by}", by=code(" · ".join(term.factors))) if term.factors else ""
    edit = subject.measured(term.value).edit
    exact = (
        error_text(edit.exact) if edit and edit.exact is not None else "not measured" if edit is None else "not found"
    )
    return [
        subject.link(term.value),
        code(term.module) if term.module else code(term.sublayer.module),
        added + times,
        Markup(subject.where(term.blocks)),
        Markup(exact),
    ]


def readout(subject: Subject) -> Lookup | None:
    """The stations from the last block to the logits, each with the equation that was evaluated."""
    rows = []
    for name, value_name in (("final norm", "final_norm_output"), ("head", "lm_head_output"), ("readout", "logits")):
        found = next(iter(subject.identities(name)), None)
        value = subject.value("model", value_name)
        if found and value:
            expression = with_factor(subject, found.expression) if name == "head" else found.expression
            rows.append([subject.link(value), place(value), code(expression), Markup(error_text(found.max_abs_error))])
    if not rows:
        return None
    after = [subject.quirk(slug) for slug in ("scaled-logits", "softcapped-logits") if slug in subject.quirks]
    if (equation := past_head(subject)) is not None:
        after.append(say("As an equation: {equation}.", equation=code(equation)))
    after = after or [Markup("Nothing stands between the head and the logits.")]
    if (naive := subject.fact("naive_lens")) is not None:
        after.append(of_run(subject, naive.statement))
    lead = Markup(" ").join(after)
    head = ["value", "PyTorch", "equation", "largest error"]
    return Lookup("l-readout", "From the last block to the logits", lead, head, rows)


def place(value: Value) -> Markup:
    """Where a value is in the Hugging Face implementation: path and side; empty where no single place has it."""
    if value.hf is None:
        return Markup("")
    if not value.hf.path:
        return say("the model's return, {element}", element=code(value.hf.element))
    side = {"in": "input", "out": "output", "op": "operation"}[value.hf.side]
    at = Markup(" ") + code(value.hf.element) if value.hf.side == "op" else Markup("")
    return say("{path} {side}", path=code(value.hf.path), side=side) + at
