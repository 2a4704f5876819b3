"""Head counts, widths that differ between blocks, and tied weights: what the shapes of a built model already decide."""

from __future__ import annotations

from typing import Any

import torch
from nnsight.intervention.envoy import Envoy

from ...instruments.extra import part
from ...measure.run import Run
from ...standard import StandardizedTransformer
from ..answers import config_entry, per_block
from ..attention.traced import NO_ATTENTION, attention_value
from ..base import Measured, Quirk, Verdict, some

SIZES = ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim")


def _every_size(model: StandardizedTransformer) -> list[dict[str, int]]:
    """For each block its sizes, from its projections' shapes."""
    label = "model.layers[i]."
    attending: dict[int, list[str]] = {}
    for path, index, host in model.hosts():
        if index is not None and host.role == "attention" and path.startswith(label):
            attending.setdefault(index, []).append(path.removeprefix(label))
    return [_sizes(envoy, attending.get(index, [])) for index, envoy in enumerate(model.layers)]


def _sizes(envoy: Envoy, attending: list[str]) -> dict[str, int]:
    """Sizes of one block with attentions at these paths; what the block does not have is left out, and a mixer's heads
    are no attention's, whatever the block calls it."""
    found: dict[str, int] = {}
    for host, names in (
        *((path, SIZES) for path in dict.fromkeys(("self_attn", "self_attn.0", *attending))),
        ("mlp", ("intermediate_size",)),
        ("mlp.shared_experts", ("intermediate_size",)),
    ):
        module: Any = part(envoy, host)
        if module is None or (names is SIZES and getattr(module, "role", "") == "mixer"):
            continue
        for name in names:
            size = getattr(module, name, None)
            if size is not None:
                found[name if host != "mlp.shared_experts" else "shared_expert_size"] = int(size)
    return found


def per_block_sizes(model: StandardizedTransformer) -> Verdict:
    """Compares the widths of the projections between blocks; one that is not the same on all makes the answer yes."""
    every = _every_size(model)
    measured: Measured = {}
    for name in dict.fromkeys(name for sizes in every for name in sizes):
        different = sorted({sizes[name] for sizes in every if name in sizes})
        if len(different) > 1:
            measured[name] = different
    return Verdict("yes" if measured else "no", measured=measured or dict(every[0]))


Heads = list[tuple[int, int] | None]
"""For each block the number of query heads and of key heads."""


def _built_heads(model: StandardizedTransformer) -> Heads:
    every = _every_size(model)
    return [(sizes["num_heads"], sizes["num_kv_heads"]) if "num_kv_heads" in sizes else None for sizes in every]


def _seen_heads(run: Run) -> Heads:
    """Counted on the queries and keys that were read."""
    found: Heads = []
    for index in range(len(run.text)):
        queries, keys = (attention_value(run, index, name) for name in ("attention_queries", "attention_keys"))
        found.append(None if queries is None or keys is None else (queries.shape[1], keys.shape[1]))
    return found


def _numbers(heads: Heads, config: Any) -> tuple[Measured, dict[str, str]]:
    """Head counts, and the config entries they equal; a list where blocks differ."""
    names = {"num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads"}
    measured: Measured = {}
    for place, number in enumerate(names):
        counts = sorted({pair[place] for pair in heads if pair is not None})
        if counts:
            measured[number] = counts[0] if len(counts) == 1 else counts
    return measured, {
        number: name for number, name in names.items() if measured.get(number) == config_entry(config, name)
    }


def _grouped(heads: Heads, config: Any) -> Verdict:
    """Fewer key heads than query heads, but more than one, make the answer yes."""
    return _counted([None if pair is None else 1 < pair[1] < pair[0] for pair in heads], heads, config)


def _multi(heads: Heads, config: Any) -> Verdict:
    """One key head for several query heads makes the answer yes."""
    return _counted([None if pair is None else 1 == pair[1] < pair[0] for pair in heads], heads, config)


def _counted(found: list[bool | None], heads: Heads, config: Any) -> Verdict:
    return per_block(found, *_numbers(heads, config), absent=NO_ATTENTION)


def tied_weights(run: Run) -> Verdict:
    """Changes one number of the embedding table and calls the head on a vector that reads it; the number is put back.
    Where the head is no module with a matrix, the number is looked for in the matrix that gives the logits.
    """
    table, head = run.model.embed_tokens._module.weight, _head(run.model)
    if head is None:
        return Verdict("inconclusive", why="No module after the blocks holds a matrix with a row for each token.")
    with torch.no_grad():
        before, there = table[0, 0].clone(), _first_logit(run, head).clone()
        try:
            table[0, 0] = before + 1
            follows = bool(_first_logit(run, head) != there)
        finally:
            table[0, 0] = before
    return Verdict("yes" if follows else "no", measured={"equal": bool(torch.equal(table, head))})


def _first_logit(run: Run, matrix: torch.Tensor) -> torch.Tensor:
    """What the head gives the first token for a vector that is one in its first number and zero else."""
    head = run.model.lm_head._module
    only = torch.zeros(1, 1, matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    only[..., 0] = 1
    held = any(parameter is matrix for parameter in head.parameters(recurse=False))
    logits: torch.Tensor = head(only)[0, 0, 0] if held else matrix[0, 0]
    return logits


def _head(model: StandardizedTransformer) -> torch.Tensor | None:
    """The matrix that gives the logits: the head's own, or that of the last module outside it with a row a token."""
    own = getattr(model.lm_head._module, "weight", None)
    if isinstance(own, torch.Tensor) and own.ndim == 2:
        return own
    table = model.embed_tokens._module
    every = [
        module.weight
        for module in model._module.modules()
        if module is not table and getattr(module, "weight", None) is not None and module.weight.ndim == 2
    ]
    return next((weight for weight in reversed(every) if weight.shape[0] == table.weight.shape[0]), None)


def tied_when_built(model: StandardizedTransformer) -> Verdict:
    """Whether embedding and head hold one parameter."""
    one = model.embed_tokens._module.weight is _head(model)
    return Verdict("yes" if one else "no", measured={"equal": one})


WORDS = {
    "num_heads": "{} query heads",
    "num_kv_heads": "{} heads of keys and values",
    "head_dim": "heads {} wide",
    "intermediate_size": "an MLP {} wide",
}


def _differing(measured: Measured, blocks: list[int] | None, total: int) -> str:
    parts = [
        form.format(" or ".join(map(str, measured[name])))
        for name, form in WORDS.items()
        if isinstance(measured.get(name), list)
    ]
    return f"Blocks are not all of one size: a block has {', '.join(parts)}."


def _sharing(measured: Measured, blocks: list[int] | None, total: int) -> str:
    queries, keys = measured.get("num_heads"), measured.get("num_kv_heads")
    if isinstance(queries, int) and isinstance(keys, int):
        return f"On {some(blocks or [], total)} {queries} query heads share {keys} heads of keys and values."
    return f"On {some(blocks or [], total)} several query heads share a head of keys and values."


QUIRKS = (
    Quirk(
        "per-block-sizes",
        "Per-block sizes",
        "text",
        lambda run: per_block_sizes(run.model),
        _differing,
        per_block_sizes,
    ),
    Quirk(
        "grouped-query",
        "Grouped-query attention",
        "text",
        lambda run: _grouped(_seen_heads(run), run.model.text_config),
        _sharing,
        lambda model: _grouped(_built_heads(model), model.text_config),
    ),
    Quirk(
        "multi-query",
        "Multi-query attention",
        "text",
        lambda run: _multi(_seen_heads(run), run.model.text_config),
        lambda m, b, n: f"On {some(b or [], n)} all query heads share one head of keys and values.",
        lambda model: _multi(_built_heads(model), model.text_config),
    ),
    Quirk(
        "tied-weights",
        "Tied head",
        "text",
        tied_weights,
        lambda m, b, n: "The head multiplies with the embedding table itself: an edit of one is an edit of the other.",
        tied_when_built,
    ),
)
