"""In which order a token's experts stand in the slots of what a router chose."""

from __future__ import annotations

import torch

from ...measure.run import Run
from ...schema import Fact


def slot_facts(run: Run) -> list[Fact]:
    """Whether the heaviest expert of every token stands first and the others follow by weight; nothing of a router
    that chooses one.
    """
    weights = {
        (key.host, key.block): held
        for key, held in run.readings.items()
        if key.name == "expert_weights" and isinstance(held, torch.Tensor) and held.shape[-1] > 1
    }
    if not weights:
        return []
    falling = [bool((held[..., :-1] >= held[..., 1:]).all()) for held in weights.values()]
    said = "The experts of a token stand in their slots by weight, the heaviest first."
    if not all(falling):
        said = "The experts of a token are not ordered by weight: the first slot need not hold the heaviest."
    value = len(falling) if all(falling) else 0  # a block on which some tokens' are by chance has no rule
    return [Fact(name="expert_slots", label="Experts by weight", value=value, unit="blocks", statement=said)]
