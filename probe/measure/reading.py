"""Reading one value of one checkpoint, for the command line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import names
from ..checkpoints import Target, load
from ..checkpoints.attention import asked_for
from ..checkpoints.implementation import default_attention, switch
from ..errors import ProbeError
from ..standard import StandardizedTransformer
from ..standard.inputs import prepare
from ..standard.trace import run as run_workers
from ..values.hosts import Host
from ..values.value import StandardValue
from ..wiring.anatomy import Underivable, derive
from .edits import unmasked
from .rounding import digits

TOP = 5


@dataclass(frozen=True)
class Reading:
    """What was read.

    Attributes:
        host: the host's label, with the block's index filled in.
        location: machine form, a path from the host.
        read_at: the location in words.
        shape: of the tensor, in the layout's axes.
        dtype: without the ``torch.`` prefix.
        stats: mean, std, min, max and norm, over what is finite.
        top: for next_token_probs, the likeliest tokens with their probabilities.
        prompt: what was run.
        attn: under which attention implementation.
    """

    host: str
    location: str
    read_at: str
    layout: str
    shape: list[int]
    dtype: str
    stats: dict[str, float]
    prompt: str
    attn: str
    top: list[tuple[str, float]] = field(default_factory=list)


def read_value(
    target: Target,
    value: str,
    *,
    layer: int | None = None,
    prompt: str | None = None,
    attn: str | None = None,
    dtype: str | None = None,
    device: str = "cpu",
    offline: bool = False,
) -> Reading:
    """Run a prompt and read one value.

    Args:
        target: the checkpoint; one that runs.
        value: a standard value's name; `vision.NAME` for a value of the tower that the text model has too.
        layer: the block, for a value of a block; None is the first that has it.
        prompt: the text; None is the probe's own.
        attn: attention implementation; None is eager for a value that needs it, the default otherwise.

    Raises:
        ProbeError: the value is unknown, or this load cannot give it: the reason is the message.
    """
    if target.kind == "config":
        raise ProbeError(
            f"{target.id} is only built from its config here, so nothing can be read; "
            "give a twin or real weights with --checkpoint."
        )
    model = StandardizedTransformer(load(target, attn="eager", dtype=dtype, device=device, offline=offline))
    with asked_for(attn or "eager"):
        switch(model._module, attn or default_attention(model._module))
    host_label, host, declared = _find(model, value, layer)
    reason = host.refusal(declared)
    if reason is not None and attn is None:
        switch(model._module, "eager")
        reason = host.refusal(declared)
    if reason is not None:
        raise ProbeError(reason, status=4)
    text, inputs = prepare(model, prompt)
    kept: list[Any] = []

    def worker() -> None:
        read = getattr(host, declared.name or "")
        kept.append(read.detach().clone() if isinstance(read, torch.Tensor) else torch.tensor(read))

    try:
        run_workers(model, inputs, [worker])
    except (IndexError, RuntimeError) as error:
        tokens, most = inputs["input_ids"].shape[-1], _positions(model)
        if most is None or tokens <= most:
            raise
        raise ProbeError(
            f"{target.id} has {most} positions and the prompt {tokens} tokens; give a shorter one with --prompt."
        ) from error
    tensor = kept[0]
    return Reading(
        host=host_label,
        location=str(declared.location),
        read_at=declared.words,
        layout=str(declared.layout),
        shape=list(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        stats=_stats(tensor),
        prompt=text,
        attn=str(model._module.config._attn_implementation),
        top=_top(model, tensor) if declared.name == "next_token_probs" else [],
    )


def _positions(model: StandardizedTransformer) -> int | None:
    """For how many tokens the config makes positions; None where it tells no number."""
    most = getattr(model._module.config.get_text_config(), "max_position_embeddings", None)
    return most if isinstance(most, int) else None


def _find(model: StandardizedTransformer, value: str, layer: int | None) -> tuple[str, Host, StandardValue]:
    """The host that serves a value: the asked-for block, or the first one that can give it."""
    wanted, tower = (value.removeprefix("vision."), True) if value.startswith("vision.") else (value, False)
    found = [
        (label, block, host, host.standard_values()[wanted])
        for label, block, host in model.hosts()
        if wanted in host.standard_values() and (label.startswith("model.vision") or not tower)
    ]
    if not found:
        raise _unserved(model, value, {name for _, _, host in model.hosts() for name in host.standard_values()})
    if layer is not None:
        blocks = sorted({block for _, block, _, _ in found if block is not None})
        at = [entry for entry in found if entry[1] == layer]
        if not at:
            where = (
                f"it has one on blocks {blocks[0]} to {blocks[-1]}"
                if blocks
                else "it belongs to the whole model, so leave --layer out"
            )
            raise ProbeError(f"{wanted} has no block {layer}: {where}.")
        found = at
    label, block, host, declared = next((entry for entry in found if entry[2].refusal(entry[3]) is None), found[0])
    return label.replace("[i]", f"[{block}]"), host, declared


def _unserved(model: StandardizedTransformer, asked: str, served: set[str]) -> ProbeError:
    """Why a checkpoint has no value of that name, or what it is called here."""
    family = model.loaded.target.family
    other, last = names.standard(asked), asked.rpartition(".")[2]
    value = other.value if other else last
    if other and value in served:
        return ProbeError(f"{names.called(asked, other)}: ask for {value}.")
    if last in served and not asked.startswith("vision."):
        return ProbeError(f"{asked!r} is no value's name: ask for {last}, and name its block with --layer.")
    if value == "layer_mid" and not asked.startswith("vision.") and (reason := _without_middle(model)):
        lacking = f"{names.called(asked, other)}, which {family} does not have" if other else f"{family} has no {value}"
        return ProbeError(f"{lacking}. {reason}", status=4)
    near = difflib.get_close_matches(last, served, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(sorted(served))}."
    return ProbeError(f"{family} has no value {asked!r}; {hint}")


def _without_middle(model: StandardizedTransformer) -> str | None:
    """Why no block has a point between its sublayers, as a run shows it; None where one has, or it cannot be told."""
    _, inputs = prepare(model)
    try:
        blocks = derive([block._module for block in model.layers], lambda: model._module(**inputs, use_cache=False))
    except Underivable:
        return None
    if all(len(block.terms) == 1 for block in blocks):
        return "Each block adds to the stream once."
    if all(len(block.terms) == 1 or block.topology == "parallel" for block in blocks):
        return "Parallel block: the sublayers of each block read the same point of the stream, and all are added to it."
    return None


def _stats(tensor: torch.Tensor) -> dict[str, float]:
    numbers = unmasked(tensor if tensor.is_floating_point() else tensor.float()).float()
    if numbers.numel() == 0:
        return {}
    std = float(numbers.std()) if numbers.numel() > 1 else 0.0
    return {
        "mean": digits(float(numbers.mean())),
        "std": digits(std),
        "min": digits(float(numbers.min())),
        "max": digits(float(numbers.max())),
        "norm": digits(float(numbers.norm())),
    }


def _top(model: StandardizedTransformer, probabilities: torch.Tensor) -> list[tuple[str, float]]:
    best = probabilities[0].topk(min(TOP, probabilities.shape[-1]))
    return [
        (model.tokenizer.decode([int(token)]), digits(float(p)))
        for token, p in zip(best.indices, best.values, strict=True)
    ]
