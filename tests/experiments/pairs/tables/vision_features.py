"""Pairs for the way from a tower's output to the text model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import has, is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, in_turn
from tests.experiments.pairs.towers import GEMMA3, GEMMA4, MIXTURE, gemma3, gemma4, mixture, tower

ALL_TOKENS = {"mm_tokens_per_image": 36}
"""As many image tokens as Gemma 3's twin has patches."""


def between_blocks(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    """A mutation of what enters the text model's third block, from the stream and from where image tokens are."""

    def mutate(module: Any) -> None:
        places: list[torch.Tensor] = []

        def look(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            places[:] = [kwargs["input_ids"] == module.config.image_token_id]

        module.register_forward_pre_hook(look, with_kwargs=True)
        blocks(module)[2].register_forward_pre_hook(lambda _, args: (change(args[0], places[0]), *args[1:]))

    return mutate


def add_at_images(stream: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    return stream + image[..., None]


def add_everywhere(stream: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return stream + 1


def promise_deepstack(module: Any) -> None:
    module.config.vision_config.deepstack_visual_indexes = [1]


def names_deepstack(module: Any) -> bool:
    return bool(getattr(module.config.vision_config, "deepstack_visual_indexes", None))


def turn(module: Any) -> None:
    """Features are put in the reverse order behind the projector."""
    original = module.model.get_image_features

    def turned(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        found.pooler_output = found.pooler_output.flip(1)
        return found

    module.model.get_image_features = turned


def new_line(module: Any) -> None:
    """A vector that other models put between lines, and that this one does not use."""
    module.model.image_newline = nn.Parameter(torch.zeros(module.config.text_config.hidden_size))


def promise_pooling(module: Any) -> None:
    module.model.multi_modal_projector.kernel_size = 2


def pools(module: Any) -> bool:
    return module.model.multi_modal_projector.kernel_size > 1


def plain_average(module: Any) -> None:
    tower(module).pooler.root_hidden_size = 1.0


def standard_already(module: Any) -> None:
    tower(module).std_bias.zero_()
    tower(module).std_scale.fill_(1)


def standardizes(module: Any) -> bool:
    return module.config.vision_config.standardize


ADDED = gemma3(between_blocks(add_at_images))

PAIRS = (
    Pair(
        "deepstack",
        about="vision",
        yes=ADDED,
        no=GEMMA3,
        mutants=(
            Mutant(ADDED, names_deepstack, "yes", "features that no config names"),
            Mutant(gemma3(promise_deepstack), names_deepstack, "no", "a config that names features"),
            Mutant(
                gemma3(in_turn(between_blocks(add_everywhere), promise_deepstack)),
                names_deepstack,
                "no",
                "a change at every token",
            ),
        ),
    ),
    Pair(
        "unpadded-features",
        about="vision",
        yes=gemma3(turn),
        no=GEMMA3,
        mutants=(
            Mutant(gemma3(turn), has("image_newline"), "yes", "features that are put in another order"),
            Mutant(gemma3(new_line), has("image_newline"), "no", "a vector that is not used"),
        ),
    ),
    Pair(
        "pooled-projector",
        about="vision",
        yes=GEMMA3,
        no=Twin("gemma3_text", "tiny-vision", ALL_TOKENS),
        mutants=(
            Mutant(
                Twin("gemma3_text", "tiny-vision", ALL_TOKENS, promise_pooling), pools, "no", "a side that is not used"
            ),
        ),
    ),
    Pair(
        "scaled-pooling",
        about="vision",
        yes=GEMMA4,
        no=gemma4(plain_average),
        mutants=(Mutant(gemma4(plain_average), is_of("gemma4"), "no", "a pooler that only averages"),),
    ),
    Pair(
        "standardized-features",
        about="vision",
        yes=MIXTURE,
        no=Twin("gemma4_text", "tiny-moe", {"vision_config.standardize": False}),
        mutants=(Mutant(mixture(standard_already), standardizes, "no", "a shift of zero and a scale of one"),),
    ),
)
