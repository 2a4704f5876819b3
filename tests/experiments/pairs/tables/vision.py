"""Pairs for what becomes of an image, and for its rows in the tower."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import has, is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.towers import GEMMA3, GEMMA4, LLAMA4, gemma3, gemma4, llama4, tower


def deaf(module: Any) -> None:
    module.model.multi_modal_projector.mm_input_projection_weight.zero_()


def one_shape(processor: Any) -> None:
    """Every image is made 24 pixels high and wide."""
    images = processor.image_processor
    before = images.aspect_ratio_preserving_resize

    def resize(image: Any, **sizes: Any) -> Any:
        square = image[:, : min(image.shape[-2:]), : min(image.shape[-2:])]
        return before(image=square, **sizes)

    images.aspect_ratio_preserving_resize = resize


def one_tile(processor: Any) -> None:
    processor.image_processor.max_tiles = 1


def pack(module: Any) -> None:
    """The tower's blocks get the patches of all images side by side."""
    encoder, images = tower(module).encoder, []

    def together(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        images.append(len(kwargs["inputs_embeds"]))
        return args, {**kwargs, "inputs_embeds": kwargs["inputs_embeds"].flatten(0, 1)[None]}

    def apart(_: nn.Module, __: Any, out: Any) -> Any:
        out.last_hidden_state = out.last_hidden_state.unflatten(1, (images.pop(), -1))[0]
        return out

    encoder.register_forward_pre_hook(together, with_kwargs=True)
    encoder.register_forward_hook(apart)


def unmask(module: Any) -> None:
    """Padded rows are attended to."""

    def unmasked(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": None}

    for block in tower(module).encoder.layers:
        block.self_attn.register_forward_pre_hook(unmasked, with_kwargs=True)


def mean_of_patches(module: Any) -> None:
    """The class row is the average of the patches."""

    def change(_: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        rows = args[0]
        return (torch.cat([rows[..., :-1, :], rows[..., :-1, :].mean(-2, keepdim=True)], -2),)

    tower(module).layernorm_pre.register_forward_pre_hook(change)


def class_row(module: Any) -> None:
    """A row of numbers stands before the patches in the blocks."""
    row = torch.linspace(-1, 1, tower(module).config.hidden_size)
    tower(module).embeddings.register_forward_hook(
        lambda _, __, out: torch.cat([row.expand(len(out), 1, -1), out], dim=1)
    )
    tower(module).post_layernorm.register_forward_hook(lambda _, __, out: out[:, 1:])


def no_blocks(module: Any) -> None:
    tower(module).encoder.layers = nn.ModuleList()


PAIRS = (
    Pair(
        "vision",
        about="vision",
        yes=GEMMA3,
        no=gemma3(deaf),
        mutants=(Mutant(gemma3(deaf), has("vision_tower"), "no", "a projector of zeros"),),
    ),
    Pair(
        "variable-resolution",
        about="vision",
        yes=GEMMA4,
        no=GEMMA3,
        mutants=(Mutant(gemma4(process=one_shape), is_of("gemma4"), "no", "images that are all made square"),),
    ),
    Pair(
        "tiled-images",
        about="vision",
        yes=LLAMA4,
        no=llama4(process=one_tile),
        mutants=(Mutant(llama4(process=one_tile), is_of("llama4"), "no", "images that are made one tile"),),
    ),
    Pair(
        "packed-tower",
        about="vision",
        yes=gemma3(pack),
        no=GEMMA3,
        mutants=(Mutant(gemma3(pack), is_of("qwen2_vl"), "yes", "a SigLIP tower with all images in one row"),),
    ),
    Pair(
        "padded-patches",
        about="vision",
        yes=GEMMA4,
        no=GEMMA3,
        mutants=(Mutant(gemma4(unmask), is_of("gemma4"), "no", "padding that patches attend to"),),
    ),
    Pair(
        "cls-token",
        about="vision",
        yes=LLAMA4,
        no=llama4(mean_of_patches),
        mutants=(
            Mutant(llama4(mean_of_patches), has("class_embedding"), "no", "a class row that pixels make"),
            Mutant(
                gemma3(class_row),
                has("class_embedding"),
                "yes",
                "a class row that no parameter holds",
                measured={"class_rows": 1},
            ),
        ),
    ),
    Pair(
        "encoder-free",
        about="vision",
        yes=Twin("gemma3_text", "tiny-vision", {"vision_config.num_hidden_layers": 0}),
        no=GEMMA3,
        mutants=(
            Mutant(
                gemma3(no_blocks),
                lambda module: module.config.vision_config.num_hidden_layers == 0,
                "yes",
                "a config that names blocks",
            ),
        ),
    ),
)
