"""A batch of three rows, a prompt, its end padded on the left, and the same padded on the right: what padding on the
left changes at real tokens, and the mask that attentions are handed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from ...checkpoints.implementation import implementation
from ...instruments.extra import SHORT, accepts, attentions, once, token_ids
from ...instruments.tap import removed
from ...measure.listing import listed
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ..answers import tolerance

PADDING = 5
"""Positions of padding before the shorter prompt's tokens."""

REFUSED = (RuntimeError, ValueError, IndexError, TypeError)
"""What a forward raises that does not take a padded batch."""


@dataclass(frozen=True)
class Batch:
    """What a call gave.

    Attributes:
        logits: ``[3, seq, vocab]`` in float32.
        masks: what the attentions were handed for a mask, each kind in words once.
    """

    logits: torch.Tensor
    masks: tuple[str, ...]


def inputs(run: Run) -> dict[str, torch.Tensor]:
    """The batch: the whole prompt, its end behind padding, its end before padding."""
    ids = token_ids(run, SHORT, 3)
    mask = torch.ones_like(ids)
    pad = getattr(run.model.text_config, "pad_token_id", None) or 0
    end = ids[0, PADDING:].clone()
    mask[1, :PADDING] = mask[2, SHORT - PADDING :] = 0
    ids[1, :PADDING] = ids[2, SHORT - PADDING :] = pad
    ids[2, : SHORT - PADDING] = end
    return {"input_ids": ids, "attention_mask": mask}


@once
def batch(run: Run, attn: str) -> Batch:
    """The batch under one attention implementation, with no positions passed."""
    return called(run, inputs(run), attn)


def called(run: Run, given: dict[str, Any], attn: str) -> Batch:
    """A call under one attention implementation, with the masks that its attentions were handed."""
    masks: dict[str, None] = {}
    with ExitStack() as stack, implementation(run.model._module, attn), torch.no_grad():
        for envoy in attentions(run):
            if envoy is not None:
                hook = envoy._module.register_forward_pre_hook(_noting(masks), with_kwargs=True)
                stack.enter_context(removed(hook))
        logits = run.model._module(**given, use_cache=False).logits.float()
    return Batch(logits, tuple(masks))


def _noting(store: dict[str, None]) -> Callable[..., None]:
    def note(_: torch.nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        if "attention_mask" in kwargs:
            store[in_words(kwargs["attention_mask"])] = None

    return note


def in_words(mask: Any) -> str:
    """What kind of mask it is, for the middle of a sentence."""
    if mask is None:
        return "no mask"
    if not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        return "a mask of another kind"
    shape = "[batch, position]" if mask.ndim == 2 else f"[batch, {'1' if mask.shape[1] == 1 else 'head'}, query, key]"
    if mask.dtype is torch.bool:
        return f"a mask {shape} of booleans{_true_where(mask)}"
    if mask.is_floating_point() and float(mask.max()) == 0 and float(mask.min()) < 0:
        least = "-inf" if float(mask.min()) == -torch.inf else f"{float(mask.min()):.1e}".replace("e+", "e")
        return f"a mask {shape} that is added to the scores, 0 where a key is seen and {least} where not"
    return f"a mask {shape} of {str(mask.dtype).removeprefix('torch.')}"


def _true_where(mask: torch.Tensor) -> str:
    """What true stands for, told by the first query, which sees its own key and no later one."""
    if mask.ndim != 4 or mask.shape[-2] < 2 or mask.shape[-1] != mask.shape[-2]:
        return ""
    own, later = (bool(mask[0, 0, 0, key]) for key in (0, -1))
    return "" if own == later else f", true where a key is {'seen' if own else 'hidden'}"


def padding_facts(run: Run) -> list[Fact]:
    """Those that apply."""
    try:
        return [*_left(run), *_masks(run)]
    except REFUSED:
        return []


def _left(run: Run) -> list[Fact]:
    """The shorter prompt's logits behind padding against those before it."""
    given = inputs(run)
    logits = batch(run, "eager").logits
    if logits.shape[:2] != given["input_ids"].shape:
        return []
    apart, close = _apart(logits), tolerance(run) * float(logits.abs().max())
    number = one_digit(apart)
    measured: dict[str, Any] = {}
    what = "With no positions passed, padding on the left"
    if apart <= close:
        moved = (
            f"moves logits at real tokens by at most {number:g}, against padding on the right"
            if number
            else "leaves logits at real tokens as padding on the right does"
        )
        said = f"{what} {moved}: where tokens stand in a row makes no difference to them."
    else:
        counted, measured = _counted(run)
        said = f"{what} moves logits at real tokens by up to {number:g}, against padding on the right; {counted}."
    label = "Logits moved by padding on the left"
    return [Fact(name="left_padding", label=label, value=number, measured=measured, statement=said)]


def _counted(run: Run) -> tuple[str, dict[str, Any]]:
    """What positions counted from the first real token change, in words, and by how much where they were passed."""
    if not accepts(run, "position_ids"):
        return "the model takes no `position_ids`", {}
    given = inputs(run)
    counted = (given["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    try:
        number = one_digit(_apart(called(run, {**given, "position_ids": counted}, "eager").logits))
    except REFUSED:
        return "it does not run with `position_ids` counted from the first real token", {}
    said = f"with `position_ids` counted from the first real token {f'by up to {number:g}' if number else 'not at all'}"
    return said, {"with_positions": number}


def _apart(logits: torch.Tensor) -> float:
    return float((logits[1, PADDING:] - logits[2, : SHORT - PADDING]).abs().max())


def _masks(run: Run) -> list[Fact]:
    """The masks of the padded batch under eager attention, of the same under sdpa, and of a prompt without padding."""
    eager = batch(run, "eager").masks
    if not eager or not any(mask != "no mask" for mask in eager):
        return []
    said = f"In a padded batch under eager attention, attentions are handed {_either(eager)}"
    try:
        run.model._module.get_correct_attn_implementation("sdpa")
        padded, plain = batch(run, "sdpa").masks, unpadded(run).masks
    except (*REFUSED, AttributeError):
        padded = plain = ()
    if padded and plain:
        said += f"; under sdpa, {_either(padded)}"
        if plain != padded:
            said += f"; under sdpa on a prompt without padding, {_either(plain)}"
    return [Fact(name="attention_masks", label="Kinds of masks under eager attention", value=len(eager),
                 statement=f"{said}.")]  # fmt: skip


@once
def unpadded(run: Run) -> Batch:
    """The run's own prompt under sdpa."""
    return called(run, run.inputs, "sdpa")


def _either(masks: tuple[str, ...]) -> str:
    """One or the other; that there is none stands first, where it is not taken for a part of what is before it."""
    return listed(sorted(masks, key=lambda mask: mask != "no mask"), "or")
