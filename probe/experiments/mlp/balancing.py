"""The loss that balances a mixture's experts: whether labels and `output_router_logits` bring it, times what, and
whether padded positions count in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...instruments.extra import SHORT, accepts, token_ids
from ...measure.run import Run
from ...schema import Fact
from ...wording import balancing_loss
from ..answers import equal

FLAG = "output_router_logits"
PADDED = 5
"""Positions at the end of the second row that are padding."""

REFUSED = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


def balancing_facts(run: Run) -> list[Fact]:
    """One sentence of a model with a mixture whose forward takes labels."""
    mixed = any(term.kind == "moe" for anatomy in run.text.anatomy for term in anatomy.terms)
    if not mixed or not accepts(run, "labels"):
        return []
    try:
        asked, plain = _called(run, **{FLAG: True}), _called(run, **{FLAG: False})
        other = _called(run, seed=3, **{FLAG: True})
    except REFUSED:
        return []
    aux = asked.get("aux_loss")
    entries = {**_entries(run.model._module.config.to_dict()), **_entries(run.model.text_config.to_dict())}
    label = "Loss that balances experts"
    apart = float(asked["loss"] - plain["loss"])
    if not isinstance(aux, torch.Tensor) or not abs(apart) > 1e-6 * abs(float(plain["loss"])):
        if isinstance(aux, torch.Tensor):
            zero = [f"`{name}`" for name, value in entries.items() if value == 0 and _about_loss(name)]
            why = f": the config's {' and '.join(zero)} is 0" if len(zero) == 1 else ""
            said = (
                f"`{FLAG}=True` fills `aux_loss`, but the loss that labels give is the same with it and without{why}."
            )
        else:
            said = f"No loss balances the experts: with labels the loss is the same with `{FLAG}=True` and without."
        return [Fact(name="balancing_loss", label=label, value=0, statement=said)]
    times = apart / float(aux)
    names = [name for name, value in entries.items() if equal(times, value) and _about_loss(name)]
    by = f"`{names[0]}` ({entries[names[0]]:g})" if names else f"{times:.3g}"
    padding = float((other["aux_loss"] - aux).abs()) > 1e-6 * abs(float(aux))
    said = balancing_loss(FLAG, entries.get(FLAG), by, padding)
    measured: dict[str, Any] = {"padding_counts": padding, **({"entry": names[0]} if names else {})}
    value = float(f"{times:.3g}")
    return [Fact(name="balancing_loss", label=label, value=value, measured=measured, statement=said)]


def _entries(config: Mapping[str, Any], stem: str = "") -> dict[str, Any]:
    """The entries of a config and of those inside it, by dotted name."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _entries(value, f"{stem}{name}.") if isinstance(value, Mapping) else {f"{stem}{name}": value}
    return found


def _about_loss(name: str) -> bool:
    return "coef" in name or "loss" in name


def _called(run: Run, seed: int = 2, **flags: bool) -> dict[str, Any]:
    """What a call with labels gives, on two rows of which the second ends in padding, whose ids ``seed`` decides."""
    ids = token_ids(run, SHORT, 2)
    ids[1, -PADDED:] = token_ids(run, PADDED, seed=seed)[0]
    mask, labels = torch.ones_like(ids), ids.clone()
    mask[1, -PADDED:] = 0
    labels[1, -PADDED:] = -100
    with torch.no_grad():
        out = run.model._module(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False, **flags)
    return dict(out)
