"""The page's one sentence, composed from what was measured on the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Experiment, Shape

_NORMS = {
    (True, True): "norms before and after each sublayer",
    (True, False): "a norm before each sublayer",
    (False, True): "a norm after each sublayer",
    (False, False): "no norms around its sublayers",
}

_PHRASES = {
    "qk-norm": "normed queries and keys",
    "multi-query": "one key/value head",
    "grouped-query": "shared key/value heads",
    "attention-sink": "attention sinks",
}


def subtitle(shapes: Sequence[Shape], blocks: Sequence[int], experiments: Sequence[Experiment]) -> str:
    """One sentence on the wiring, the attention, the MLP and what is unusual."""
    yes = {experiment.slug for experiment in experiments if experiment.verdict == "yes"}
    first = shapes[blocks[0]]
    attention = next((sublayer for sublayer in first.sublayers if sublayer.kind == "attention"), first.sublayers[0])
    norms = _NORMS[attention.pre_norm is not None, attention.post_norm is not None]
    sentence = f"{first.topology.capitalize()} blocks with {norms}"
    features = [phrase for slug, phrase in _PHRASES.items() if slug in yes]
    if features:
        sentence += f", {_listed(features)}"
    parts = [sentence]
    kinds = list(dict.fromkeys(shape.layer_type or "" for shape in shapes))
    if len(kinds) > 1:
        parts.append(
            f"{_listed([kind.removesuffix('_attention').replace('_', ' ') for kind in kinds])} attention take turns"
        )
    mixture = [any(sublayer.kind == "moe" for sublayer in shape.sublayers) for shape in shapes]
    if all(mixture):
        parts.append("a mixture of experts on every block")
    elif any(mixture):
        count = sum(mixture[shape] for shape in blocks)
        parts.append(f"a mixture of experts on {count} of {len(blocks)} blocks")
    if any(sublayer.kind == "branch" for shape in shapes for sublayer in shape.sublayers):
        parts.append("a branch of per-layer embeddings adds a third term")
    scaled = next((factor.name for shape in shapes for factor in shape.factors if factor.applies_to == "sum"), None)
    if scaled:
        parts.append(f"{scaled} multiplies the block's sum")
    borrowed = sum(shapes[shape].lends == "borrowed" for shape in blocks)
    if borrowed:
        parts.append(f"{borrowed} of {len(blocks)} blocks borrow keys and values")
    if "softcapped-logits" in yes:
        parts.append("the logits are softcapped")
    return "; ".join(parts) + "."


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" and {items[-1]}"
