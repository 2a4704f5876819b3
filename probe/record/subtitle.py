"""The page's one sentence, composed from what was measured on the checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..measure.listing import listed
from ..recurrences import RECURRENCES
from ..schema import Experiment, Shape

_NORMS = {
    (True, True): "norms before and after each sublayer",
    (True, False): "a norm before each sublayer",
    (False, True): "a norm after each sublayer",
    (False, False): "no norms around its sublayers",
}

_NORMS_OF_ONE = {
    (True, True): "norms before and after it",
    (True, False): "a norm before it",
    (False, True): "a norm after it",
    (False, False): "no norm around it",
}

_PHRASES = {
    "hyper-connections": "hyper-connections",
    "alibi": "ALiBi",
    "relative-bias": "a bias by distance",
    "position-embeddings": "position embeddings",
    "latent-attention": "latent attention",
    "qk-norm": "normed queries and keys",
    "attention-sink": "attention sinks",
    "multi-query": "one key/value head",
    "grouped-query": "shared key/value heads",
}
"""What is worth a word in the first clause, the most telling first."""

_MIXERS = {
    "mamba1": "state space mixers (selective scan)",
    "mamba2": "state space mixers (state-space dual)",
    "gated-recurrence": "gated linear recurrences",
    "matrix-memory": "matrix memories",
    "delta-rule": "delta-rule mixers",
    "fixed-decay": "{recurrence} of fixed decay",
    "convolution-mixers": "short convolutions",
}

MOST_FEATURES, MOST_CLAUSES = 3, 4


def subtitle(shapes: Sequence[Shape], blocks: Sequence[int], experiments: Sequence[Experiment]) -> str:
    """One sentence on the wiring, what mixes positions, the MLP and what is unusual, the main things first."""
    yes = {experiment.slug: experiment for experiment in experiments if experiment.verdict == "yes"}
    clauses = [
        _wiring(shapes, blocks, yes),
        _mixers(shapes, blocks, yes),
        _looped(blocks, yes),
        _mixture(shapes, blocks),
        _borrowing(shapes, blocks),
        _branch(shapes),
        "" if "hybrid" in yes else _turns(shapes),
        _scaled(shapes),
        "the logits are softcapped" if "softcapped-logits" in yes else "",
    ]
    return "; ".join([clause for clause in clauses if clause][:MOST_CLAUSES]) + "."


def _wiring(shapes: Sequence[Shape], blocks: Sequence[int], yes: Mapping[str, Experiment]) -> str:
    first = shapes[blocks[0]]
    normed = Counter(_normed(shapes[block]) for block in blocks).most_common(1)[0][0]
    if "post-ln" in yes and normed == (True, False):
        sentence = f"{first.topology.capitalize()} blocks that norm the stream itself before each sublayer"
    elif not any(normed) and "post-ln" in yes:
        sentence = f"{first.topology.capitalize()} blocks that norm the stream after each add"
    elif "one-sublayer-blocks" in yes and yes["one-sublayer-blocks"].blocks == list(range(len(blocks))):
        sentence = f"Blocks of one sublayer with {_NORMS_OF_ONE[normed]}"
    else:
        sentence = f"{first.topology.capitalize()} blocks with {_NORMS[normed]}"
    features = [phrase for slug, phrase in _PHRASES.items() if slug in yes][:MOST_FEATURES]
    return f"{sentence}, {listed(features)}" if features else sentence


def _normed(shape: Shape) -> tuple[bool, bool]:
    """Whether a norm stands before, and whether one stands after, a block's attention, or its first sublayer."""
    sublayer = next((sublayer for sublayer in shape.sublayers if sublayer.kind == "attention"), shape.sublayers[0])
    return sublayer.pre_norm is not None, sublayer.post_norm is not None


def _mixers(shapes: Sequence[Shape], blocks: Sequence[int], yes: Mapping[str, Experiment]) -> str:
    """What mixes positions besides attention, and on how many blocks; an attention may stand on the way into it."""
    kinds = [{sublayer.kind for sublayer in shape.sublayers} for shape in shapes]
    count = sum("mixer" in kinds[shape] for shape in blocks)
    if not count:
        return ""
    attending = sum("attention" in kinds[shape] for shape in blocks)
    ran = next((sub.recurrence for shape in shapes for sub in shape.sublayers if sub.recurrence), None)
    recurrence = f"a {RECURRENCES[ran]}" if ran else "linear attention"
    phrases = [phrase.format(recurrence=recurrence) for slug, phrase in _MIXERS.items() if slug in yes]
    what = listed(phrases or ["mixers of another kind"])
    where = "every block" if count == len(blocks) else f"{count} of {len(blocks)} blocks"
    if "parallel-mixers" in yes:
        return f"{what} beside the attention on {where}"
    if attending:
        return f"{what} on {where}, attention on {attending}"
    if "hybrid" in yes:
        return f"{what} on {where}, some after an attention"
    return f"{what} in place of attention" if count == len(blocks) else f"{what} on {where}"


def _looped(blocks: Sequence[int], yes: Mapping[str, Experiment]) -> str:
    looped = yes["looped-blocks"].blocks or [] if "looped-blocks" in yes else []
    if not looped:
        return ""
    where = "every block" if len(looped) == len(blocks) else f"{len(looped)} of {len(blocks)} blocks"
    return f"{where} run{'s' if len(looped) in (1, len(blocks)) else ''} several times in a forward"


def _mixture(shapes: Sequence[Shape], blocks: Sequence[int]) -> str:
    mixture = [any(sublayer.kind == "moe" for sublayer in shape.sublayers) for shape in shapes]
    if not any(mixture):
        return ""
    count = sum(mixture[shape] for shape in blocks)
    return f"a mixture of experts on {'every block' if all(mixture) else f'{count} of {len(blocks)} blocks'}"


def _borrowing(shapes: Sequence[Shape], blocks: Sequence[int]) -> str:
    borrowed = sum(shapes[shape].lends == "borrowed" for shape in blocks)
    return f"{borrowed} of {len(blocks)} blocks borrow keys and values" if borrowed else ""


def _branch(shapes: Sequence[Shape]) -> str:
    branch = any(sublayer.kind == "branch" for shape in shapes for sublayer in shape.sublayers)
    return "a branch of per-layer embeddings adds a third term" if branch else ""


def _turns(shapes: Sequence[Shape]) -> str:
    kinds = list(dict.fromkeys(shape.layer_type or "" for shape in shapes))
    names = [kind.removesuffix("_attention").replace("_", " ") for kind in kinds]
    return f"{listed(names)} attention take turns" if len(kinds) > 1 else ""


def _scaled(shapes: Sequence[Shape]) -> str:
    scaled = next((factor.name for shape in shapes for factor in shape.factors if factor.applies_to == "sum"), None)
    return f"{scaled} multiplies the block's sum" if scaled else ""
