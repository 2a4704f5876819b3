"""Embeddings, positions and the family's own machinery: each quirk that holds, with what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from probe.recurrences import RECURRENCES
from probe.render.know.blocks import partial
from probe.render.know.heads import scaled_scores
from probe.render.know.loading import CALLS
from probe.render.know.subject import BLOCK, Subject, code, listing, many, of_run, say, with_groups, within
from probe.render.know.terms import host_of
from probe.render.text import figure, prose, some_blocks
from probe.wording import scaled_wavelengths

ENTRANCE = (
    "scaled-embeddings",
    "embedding-multiplier",
    "position-embeddings",
    "normed-embeddings",
    "embeddings-again",
    "per-layer-embeddings",
    "alibi",
    "relative-bias",
    "nope-blocks",
    "partial-rotary",
    "proportional-rotary",
    "interleaved-rotary",
    "norm-after-rotary",
    "rotary-bases",
    "rescaled-rotary",
    "multimodal-rotary",
    "attention-temperature",
)
"""Quirks of embeddings and positions."""

ACTIVATIONS = {
    "silu": "SiLU, `x * sigmoid(x)`",
    "gelu": "the exact GELU, by the error function",
    "gelu_tanh": "the GELU of the tanh approximation",
    "relu": "ReLU",
    "relu_squared": "the square of ReLU",
}
"""What the functions that an experiment can tell apart are called."""

ELSEWHERE = {
    *CALLS,
    "grouped-query",
    "multi-query",
    "hyper-connections",
    "looped-blocks",
    "no-mlp",
    "one-sublayer-blocks",
    "own-attention-arithmetic",
    "parallel-blocks",
    "post-ln",
    "post-norms",
    "residual-inside-module",
    "sandwich-norms",
    "scaled-logits",
    "scaled-residual-adds",
    "softcapped-logits",
    "tied-weights",
    "tuple-blocks",
}
"""Quirks that the sentences on the block's sum, the lens and the load tell."""

FOLLOWS = {
    "scaled-embeddings": "A row of the table has to be multiplied likewise before it stands for a token in the stream.",
    "per-layer-embeddings": "Another token put in at `token_embeddings` leaves this path as it was.",
    "norm-after-rotary": "What the rotation gives is not yet what the scores compare.",
    "partial-rotary": "What the other dimensions compare does not depend on distance.",
    "alibi": "It is in `attention_scores`: two keys at different distances compare only after it is taken off.",
    "gain-norm": "Folding a norm into the projection after it takes 1 + weight.",
    "qk-norm": "So the size of a query or key before its norm is not how strongly it matches.",
    "values-from-keys": "An edit of that projection moves keys and values together.",
    "fused-qkv": "A weight edit has to pick its part of that projection.",
    "gated-query": "The projection is wider than the query heads side by side.",
    "conv-qk": "A patch of one position therefore moves the queries or keys of later ones.",
    "shared-expert": "Setting the routed experts to zero does not empty the mixture.",
    "sliding-window": "What lies further back reaches the query only by way of positions between.",
    "sparse-attention": "An edit before it can change which keys are seen at all.",
    "clipped-projections": "Beyond it, an edit of what the projection reads or gives changes nothing.",
    "depth-scaled-scores": "The same q·k weighs less on a later block.",
    "state-in-parts": "Read and patch all of them together.",
    "gated-norms": "So the norm's weight cannot be folded into the projection after it.",
    "norm-behind-gate": "Closing one channel rescales the others.",
    "bounded-mlps": "A neuron at its limit passes on no change of what it reads.",
    "shared-weights": "A weight cannot be edited for one of them alone.",
    "handed-state": "So a stream that is patched at a block does not bring all that earlier blocks did to it.",
    "shared-indices": "An edit there reaches this block beside the stream.",
    "mixture-of-experts": "An edit of one expert's weights moves only the tokens that it is chosen for.",
}
"""What follows from a quirk, where its statement does not say so."""


def entrance(subject: Subject) -> list[Markup]:
    """From the table to block 0, and how positions enter."""
    return [
        *_first_stream(subject),
        *_images(subject),
        *_quirks(subject, [slug for slug in ENTRANCE if slug in subject.quirks]),
        *_rounded_factor(subject),
        *_turning(subject),
        *_after_image(subject),
    ]


def machinery(subject: Subject) -> list[Markup]:
    """Quirks of the block's inside, the mixers, the mixture's equations, and scales of scores out of the ordinary."""
    told = {*ENTRANCE, *ELSEWHERE}
    mine = [slug for slug in subject.quirks if slug not in told]
    slots = subject.fact("expert_slots")
    experts = [*_equations(subject), *([prose(slots.statement)] if slots else []), *_expert_weights(subject)]
    experts += [] if subject.record.weights else stored(subject)
    return [
        *_mixers(subject),
        *_splits(subject),
        *_quirks(subject, mine),
        *_activation(subject),
        *experts,
        *scaled_scores(subject),
    ]


def _activation(subject: Subject) -> list[Markup]:
    """Which function the neurons pass, where the run told it and no quirk does."""
    found = subject.measured_numbers("squared-relu").get("function")
    names = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    if not names or not set(names) <= set(ACTIVATIONS) or "squared-relu" in subject.quirks:
        return []
    functions = listing([prose(ACTIVATIONS[str(name)]) for name in names])
    text = "The activation of the MLPs is {functions}, told from {others} others by its values from −4 to 4."
    if len(names) > 1:
        text = "The activations of the MLPs are {functions}, told by their values from −4 to 4."
    return [say(text, functions=functions, others=len(ACTIVATIONS) - 1)]


def _quirks(subject: Subject, slugs: Sequence[str]) -> list[Markup]:
    told = set(partial(subject))
    return [_quirk(subject, slug) for slug in slugs if slug not in told]


def _quirk(subject: Subject, slug: str) -> Markup:
    if slug == "output-gate":
        return subject.quirk(slug, _gate(subject))
    return subject.quirk(slug, _sink(subject) if slug == "attention-sink" else prose(FOLLOWS.get(slug, "")))


def _sink(subject: Subject) -> Markup:
    """Which parameter the logit is, and the pattern rebuilt with it."""
    fact, total = subject.fact("sink_parameter"), len(subject.run.blocks) if subject.run else 0
    every = fact is not None and len(many(fact, "blocks")) == total
    said = [prose(fact.statement) if every else of_run(subject, fact.statement)] if fact else []
    for found in subject.identities("pattern")[:1]:
        how = within(found.max_abs_error)
        said.append(say("The pattern is {sum}, {how}: the softmax with a column more, which is then dropped.",
                        sum=code(found.expression), how=how))  # fmt: skip
    return Markup(" ").join(said)


def _gate(subject: Subject) -> Markup | str:
    """The values before and after an output gate, where an identity shows that the gate stands between them."""
    before, after = (
        subject.value(f"{BLOCK}.self_attn", name) for name in ("attention_head_outputs", "attention_premix")
    )
    gated = [i for i in subject.identities("premix") if " * " in i.expression]
    if before is None or after is None or not gated:
        return ""
    return say("{before} is without it and {after} with it.", before=subject.link(before), after=subject.link(after))


def _first_stream(subject: Subject) -> list[Markup]:
    """What stands between the embedding and block 0, where that is not nothing."""
    said = []
    for identity in subject.identities("stream into the first block"):
        left = identity.expression.partition(" == ")[0]
        if left != "token_embeddings" and "embedding-multiplier" not in subject.quirks:
            text = "Block 0 does not take `token_embeddings` as they are: what enters is {left}."
            said.append(say(text, left=code(left)))
    return said


def _images(subject: Subject) -> list[Markup]:
    """What the text stream takes at the tokens of an image: by its standard name, else by the module that gives it."""
    scatter = [i for i in subject.standing.identities(True) if i.name == "scatter" and i.holds]
    stations = subject.run.images.stations if subject.run and subject.run.images else []
    given = [code("vision.image_features") for _ in scatter[:1]]
    given = given or [code(row.path) for row in stations if row.side == "out" and row.enters == [-1]][:1]
    said = []
    for what in given:
        text = "At the tokens of an image block 0 takes {what} in place of the token's embedding{error}."
        if not scatter:
            text = "At the tokens of an image block 0 takes what {what} returns in place of the token's embedding."
        error = f", {within(scatter[0].max_abs_error)}" if scatter else ""
        said.append(say(text, what=what, error=error))
    if later := sorted({block for row in stations for block in row.enters or [] if block >= 0}):
        mergers = [code(row.path) for row in stations if row.side == "out" and {*later} & {*(row.enters or [])}]
        read = [
            f", made from the encoder's {some_blocks(row.takes, 0)}," for row in stations if row.takes and row.blocks
        ]
        said.append(
            say(
                "{twin}hat {mergers} gives{read} is added to the stream at these tokens after {blocks} of the {total}"
                ", one each.{own}",
                twin="W" if subject.standing.ran else "On the twin w",
                mergers=listing(mergers),
                read=read[0] if read else "",
                blocks=some_blocks(later, 0),
                total=len(subject.run.blocks) if subject.run else 0,
                own=_own_blocks(subject, [row.takes for row in stations if row.takes and row.blocks]),
            )
        )
    return said


PAIRS = ("rotary_reorders", "rotary_direction", "rotary_part")
"""Facts on what turns."""


def _turning(subject: Subject) -> list[Markup]:
    """How long turning makes queries and keys, a number of the run's own config, and whether it depends on the call."""
    longer, switch = subject.fact("rotary_length"), subject.fact("rotary_switch")
    said = []
    if longer:
        said.append(prose(longer.statement) if longer.value == 1 else of_run(subject, longer.statement))
    said += [prose(switch.statement)] if switch else []
    said += [prose(fact.statement) for name in PAIRS if (fact := subject.fact(name))]
    return [*said, *_scaling(subject)]


def _scaling(subject: Subject) -> list[Markup]:
    """The wavelengths between which frequencies are lowered, with the config's own numbers."""
    fact = subject.fact("rotary_scaling")
    if fact is None:
        return []

    def quotient(name: str) -> str:
        names = str(fact.measured[name]).split(" / ")
        whole, part = map(subject.config, names)
        known = isinstance(whole, (int, float)) and isinstance(part, (int, float)) and part
        value = f" ({figure(round(whole / part, 1))})" if known else ""  # type: ignore[operator]
        return " / ".join(f"`{each}`" for each in names) + value

    factor = str(fact.measured["by"])
    own = subject.config(factor)
    by = f"`{factor}`{f' ({figure(own)})' if own else ''}"
    return [prose(scaled_wavelengths(quotient("kept_below"), quotient("divided_beyond"), by))]


def _after_image(subject: Subject) -> list[Markup]:
    """The positions of the text after an image, of the size that the run had."""
    fact = subject.fact("positions_after_image") or subject.fact("image_read")
    return [of_run(subject, fact.statement)] if fact else []


def _expert_weights(subject: Subject) -> list[Markup]:
    """How stacked experts are stored, and whether experts have biases, for each kind of mixture."""
    told = ("expert_weights", "expert_biases")
    return [prose(fact.statement) for fact in subject.facts if fact.name.startswith(told)]


def stored(subject: Subject) -> list[Markup]:
    """How MLPs store their neurons, and what files call weights; told with the table of weights where there is one."""
    facts = [fact for name in ("mlp_weights", "file_names") if (fact := subject.fact(name))]
    return [of_run(subject, fact.statement) if many(fact, "blocks") else prose(fact.statement) for fact in facts]


def _own_blocks(subject: Subject, taken: list[list[int]]) -> Markup | str:
    """The entry of the config that has the blocks of the encoder that the run read, as the checkpoint has it."""
    if subject.standing.ran or subject.run is None:
        return ""
    names = [row.name for row in subject.run.vision_config or [] if row.value in taken]
    own = next((row for row in subject.record.vision_config or [] if len(names) == 1 and row.name == names[0]), None)
    if own is None or not isinstance(own.value, list):
        return ""
    return say(" Here {entry} has {blocks}.", entry=code(own.name), blocks=listing(own.value))


def _rounded_factor(subject: Subject) -> list[Markup]:
    """The embeddings' factor in a half-precision load: a number of the run's own width."""
    fact = subject.fact("half_embedding_factor")
    return [of_run(subject, fact.statement, f"whose stream is {subject.width} wide")] if fact else []


def _mixers(subject: Subject) -> list[Markup]:
    """Mixers that are no attention: their class and what is served in them."""
    found: dict[tuple[str, str, str | None], list[int]] = {}
    attending = _attending(subject)
    for shape, blocks in subject.shapes():
        for sub in shape.sublayers:
            if sub.kind == "mixer":
                found.setdefault((host_of(sub), sub.module, sub.recurrence), []).extend(blocks)
    said = []
    for (host, module, recurrence), blocks in found.items():
        rows = [v for v in subject.record.values if v.host == host and subject.value(v.host, v.name)]
        inner = listing([subject.linked(v, v.name) for v in rows if v.name != "attention_output"])
        text = "On {where} positions are mixed by {what}{module} ({host}){attention}; "
        text += (
            "of the mixer's values these are read: {inner}."
            if inner
            else "of its inside nothing is served, only what it adds."
        )
        attention = ", and by an attention too" if attending & {*blocks} else " and not by attention"
        what = f"a {RECURRENCES[recurrence]}, " if recurrence else ""
        parts = {
            "what": what,
            "where": subject.among(blocks),
            "module": code(module),
            "host": code(host),
            "inner": inner,
        }
        said.append(say(text, attention=attention, **parts))
    return said


def _splits(subject: Subject) -> list[Markup]:
    """How the outputs of the mixers' linear layers are split, and what their convolutions read, with the sizes of the
    run.
    """
    told = ("mixer_split", "convolution")
    return [of_run(subject, fact.statement) for fact in subject.facts if fact.name.startswith(told)]


def _attending(subject: Subject) -> set[int]:
    """The blocks on which an attention runs, as a sublayer or on the way into one."""
    found = {b for shape, mine in subject.shapes() if any(s.kind == "attention" for s in shape.sublayers) for b in mine}
    for value in subject.record.values:
        if value.name == "attention_probabilities":
            found |= {*(value.blocks or [])}
    return found


def _equations(subject: Subject) -> list[Markup]:
    """How the router chooses and weighs, and how the mixture's sum is made, as they were evaluated."""
    said = []
    for name, what in (
        ("expert choice", "The experts are chosen by"),
        ("expert weights", "Their weights are"),
        ("mixture", "The mixture's output is"),
    ):
        found = {i.expression: i for i in subject.identities(name)}
        if found:
            error = within(max(identity.max_abs_error for identity in found.values()))
            equations = listing([code(with_groups(subject, expression)) for expression in found])
            said.append(say("{what} {equations}, {error}.", what=what, equations=equations, error=error))
    return said
