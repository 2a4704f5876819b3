"""Eager attention against sdpa: how far the logits are apart, on the prompt and in a padded batch."""

from __future__ import annotations

import torch

from ...instruments.extra import attentions
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ..answers import NO_ATTENTION
from .padding import PADDING, REFUSED, batch, inputs, unpadded


def sdpa_facts(run: Run) -> list[Fact]:
    """Largest difference of a logit between eager attention and sdpa: on the prompt, and on two prompts padded on
    the left. A class that takes no sdpa has nothing to compare, and says so.
    """
    dtype = str(run.dtype).removeprefix("torch.")
    try:
        run.model._module.get_correct_attn_implementation("sdpa")
        plain = one_digit(float((unpadded(run).logits - run.root("logits")).abs().max()))
    except ValueError:
        return [_alone(run, "refuses sdpa")]
    except (RuntimeError, AttributeError, TypeError, IndexError) as error:
        return [_alone(run, f"stops under sdpa with {type(error).__name__}")]
    try:
        apart = _apart(run)
    except REFUSED:
        return [_plain(plain, dtype)]
    if apart is None:
        return [_plain(plain, dtype)]
    real, padding = (one_digit(number) for number in apart)
    return [
        _plain(plain, dtype),
        Fact(
            name="eager_sdpa_padded",
            label="Eager against sdpa, padded batch",
            value=real,
            statement=(
                "In a batch of two prompts, the shorter padded on the left, logits at real tokens "
                f"{_differ(real)} ({dtype})."
            ),
        ),
        Fact(
            name="eager_sdpa_padding",
            label="Eager against sdpa, at padding",
            value=padding,
            statement=(
                f"In the same batch the logits at the padded positions themselves, {PADDING} at the start of the "
                f"shorter prompt, {_differ(padding)}: such a query has no key to see, and what it then gives is up to "
                "the kernel."
                if padding > 100 * max(real, 1e-6)
                else f"At the {PADDING} padded positions at the start of the shorter prompt they {_differ(padding)}."
            ),
        ),
    ]


def _plain(plain: float, dtype: str) -> Fact:
    return Fact(
        name="eager_sdpa",
        label="Eager against sdpa",
        value=plain,
        statement=f"On the prompt, logits under eager attention and sdpa {_differ(plain)} ({dtype}).",
    )


def _differ(largest: float) -> str:
    return f"differ by at most {largest:g}" if largest else "are the same"


def _alone(run: Run, how: str) -> Fact:
    """That only eager runs; where no block has an attention, that there is nothing to choose."""
    statement = f"{type(run.model._module).__name__} {how}: there is no other kernel to compare eager with."
    if not any(attentions(run)):
        statement = f"{NO_ATTENTION[:-1]}, so the setting `attn` changes nothing; the class {how}."
    return Fact(name="takes_sdpa", label="Takes sdpa", value=False, statement=statement)


def _apart(run: Run) -> tuple[float, float] | None:
    """Largest difference of the logits under eager and sdpa, of a whole prompt and one padded on the left, where the
    mask is one and where it is zero; None where the logits stand at other positions than the tokens.
    """
    difference = (batch(run, "eager").logits - batch(run, "sdpa").logits)[:2].abs().amax(-1)
    real = inputs(run)["attention_mask"][:2].bool()
    if difference.shape != real.shape:
        return None
    return float(difference[real].max()), float(difference[~real].nan_to_num(torch.inf).max())
