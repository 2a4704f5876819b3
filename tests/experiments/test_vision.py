"""Vision quirks on twins that have them, twins that do not, and twins mutated against their config and class names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from probe.checkpoints import images, load, targets, twins
from probe.checkpoints.digest import of_weights
from probe.experiments.vision.images import QUIRKS, _packed
from probe.measure.run import Run, measure
from probe.schema import Experiment
from probe.standard import StandardizedTransformer
from probe.standard.trace import Key

Mutation = Callable[[Any], Any]
SEES = ("gemma4_text/tiny-vision", "gemma4_text/tiny-moe", "llama4_text/tiny-vision", "gemma3_text/tiny-vision")


def run_of(twin: str, mutate: Mutation | None = None, overrides: dict[str, Any] | None = None) -> Run:
    """A measured twin; ``mutate`` gets its module before anything is run."""
    family, name = twin.split("/")
    loaded = load(next(target for target in targets(family) if target.id == name))
    if overrides:
        module = twins.build(family, name, overrides)
        processor = images.processor(module.config, twins.spec(family, name).get("image", {}))
        loaded = replace(loaded, module=module, config=module.config, processor=processor)
    if mutate is not None:
        mutate(loaded.module)
    return measure(StandardizedTransformer(loaded))


@cache
def plain(twin: str) -> Run:
    return run_of(twin)


def answer(run: Run, slug: str) -> Experiment:
    quirk = next(quirk for quirk in QUIRKS if quirk.slug == slug)
    assert run.vision is not None
    return quirk.record(quirk.run(run), len(run.vision))


GEMMA4, MOE, LLAMA4, GEMMA3 = SEES

TABLE = {
    "vision": (SEES, ()),
    "cls-token": ((LLAMA4,), (GEMMA4, GEMMA3)),
    "packed-tower": ((), SEES),
    "variable-resolution": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "padded-patches": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "tiled-images": ((LLAMA4,), (GEMMA4, GEMMA3)),
    "deepstack": ((), SEES),
    "unpadded-features": ((), SEES),
    "pooled-projector": (SEES, ()),
    "encoder-free": ((), SEES),
    "scaled-pooling": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "standardized-features": ((MOE,), (GEMMA4, LLAMA4, GEMMA3)),
    "vision-rotary": ((GEMMA4, LLAMA4), (GEMMA3,)),
    "tower-positions": (SEES, ()),
    "unmasked-tower": (SEES, ()),
    "tower-layernorm": ((LLAMA4, GEMMA3), (GEMMA4, MOE)),
    "tower-sandwich-norms": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "tower-qk-norm": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "tower-value-norm": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "unscaled-scores": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
    "clipped-linears": ((GEMMA4,), (MOE, LLAMA4, GEMMA3)),
    "no-tower-norm": ((GEMMA4, MOE), (LLAMA4, GEMMA3)),
}
"""Slug -> the twins that have it, and those that do not."""


def test_every_quirk_is_in_the_table() -> None:
    assert {quirk.slug for quirk in QUIRKS} == set(TABLE)


@pytest.mark.parametrize(("slug", "twin"), [(slug, twin) for slug, (yes, _) in TABLE.items() for twin in yes])
def test_has(slug: str, twin: str) -> None:
    found = answer(plain(twin), slug)
    assert found.verdict == "yes", found
    assert found.statement and found.statement.endswith(".")


@pytest.mark.parametrize(("slug", "twin"), [(slug, twin) for slug, (_, no) in TABLE.items() for twin in no])
def test_has_not(slug: str, twin: str) -> None:
    assert answer(plain(twin), slug).verdict == "no"


def tower(module: Any) -> Any:
    return getattr(module, "vision_model", None) or module.model.vision_tower


def attentions(module: Any) -> list[Any]:
    return [child for name, child in tower(module).named_modules() if name.endswith("self_attn")]


def for_each_attention(change: Mutation) -> Mutation:
    return lambda module: [change(attention) for attention in attentions(module)]


def _without_mask(attention: Any) -> None:
    def enter(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": None}

    attention.register_forward_pre_hook(enter, with_kwargs=True)


def _causal(attention: Any) -> None:
    def enter(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        rows = (args[0] if args else kwargs["hidden_states"]).shape[1]
        return args, {**kwargs, "attention_mask": torch.full((rows, rows), -1e38).triu(1)[None, None]}

    attention.register_forward_pre_hook(enter, with_kwargs=True)


def _without(*names: str) -> Mutation:
    return for_each_attention(lambda attention: [setattr(attention, name, nn.Identity()) for name in names])


def _unbounded(module: Any) -> None:
    for name, buffer in tower(module).named_buffers():
        if name.endswith(("_min", "_max")):
            buffer.fill_(float("inf") if name.endswith("_max") else float("-inf"))


def _not_standardized(module: Any) -> None:
    tower(module).std_bias.zero_()
    tower(module).std_scale.fill_(1)


class LayerNorm(nn.LayerNorm):
    """Named as one, and subtracts no mean."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * value.square().mean(-1, keepdim=True).add(self.eps).rsqrt() * self.weight


def _norms_by_name_only(module: Any) -> None:
    for layer in tower(module).encoder.layers:
        for name in ("layer_norm1", "layer_norm2"):
            norm = LayerNorm(layer.layer_norm1.normalized_shape)
            norm.weight.data.copy_(getattr(layer, name).weight)
            setattr(layer, name, norm.requires_grad_(False))


def _deaf(module: Any) -> None:
    module.model.multi_modal_projector.mm_input_projection_weight.data.zero_()


@pytest.mark.parametrize(
    ("slug", "twin", "mutate"),
    [
        ("vision", GEMMA3, _deaf),
        ("padded-patches", GEMMA4, for_each_attention(_without_mask)),
        ("scaled-pooling", GEMMA4, lambda module: setattr(tower(module).pooler, "root_hidden_size", 1.0)),
        ("standardized-features", MOE, _not_standardized),
        ("vision-rotary", GEMMA4, lambda module: tower(module).encoder.rotary_emb.inv_freq.zero_()),
        ("tower-positions", GEMMA3, lambda module: tower(module).embeddings.position_embedding.weight.data.zero_()),
        ("unmasked-tower", GEMMA3, for_each_attention(_causal)),
        ("tower-layernorm", GEMMA3, _norms_by_name_only),
        ("tower-qk-norm", GEMMA4, _without("q_norm", "k_norm")),
        ("tower-value-norm", GEMMA4, _without("v_norm")),
        ("unscaled-scores", GEMMA4, for_each_attention(lambda attention: setattr(attention, "scaling", 0.25))),
        ("clipped-linears", GEMMA4, _unbounded),
    ],
)
def test_the_weights_decide_where_config_and_names_still_say_yes(slug: str, twin: str, mutate: Mutation) -> None:
    assert answer(run_of(twin, mutate), slug).verdict == "no"


def test_no_pooling_where_the_config_asks_for_as_many_tokens_as_patches() -> None:
    assert answer(run_of(GEMMA3, overrides={"mm_tokens_per_image": 36}), "pooled-projector").verdict == "no"


def test_no_tiles_where_the_processor_makes_one() -> None:
    run = run_of(LLAMA4)
    run.model.loaded.processor.image_processor.max_tiles = 1
    assert answer(run, "tiled-images").verdict == "no"


def test_a_class_row_put_first_is_seen_first() -> None:
    row = torch.linspace(-1, 1, 32)

    def mutate(module: Any) -> None:
        eye = tower(module)
        eye.embeddings.register_forward_hook(lambda _, __, out: torch.cat([row.expand(len(out), 1, -1), out], dim=1))
        eye.post_layernorm.register_forward_hook(lambda _, __, out: out[:, 1:])

    found = answer(run_of(GEMMA3, mutate), "cls-token")
    assert (found.verdict, found.measured["place"], found.measured["class_rows"]) == ("yes", "first", 1)


def test_features_added_between_text_blocks_are_seen_there() -> None:
    run = run_of(GEMMA3)
    key = Key("model.layers[i]", 2, "layer_input")
    run.readings[key] = run.readings[key].clone()
    run.readings[key][run.root("image_token_mask", "model.vision")] += 1.0
    found = answer(run, "deepstack")
    assert (found.verdict, found.measured["text_blocks"]) == ("yes", [1])


def test_features_that_are_not_the_projectors_output() -> None:
    def mutate(module: Any) -> None:
        original = module.model.get_image_features

        def turned(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            found.pooler_output = found.pooler_output.flip(1)
            return found

        module.model.get_image_features = turned

    assert answer(run_of(GEMMA3, mutate), "unpadded-features").verdict == "yes"


def test_a_turning_class_row_is_told_from_a_resting_one() -> None:
    def mutate(module: Any) -> None:
        frequencies = tower(module).rotary_embedding.freqs_ci
        frequencies[-1] = frequencies[3]

    assert answer(plain(LLAMA4), "vision-rotary").measured["class_row_turns"] is False
    assert answer(run_of(LLAMA4, mutate), "vision-rotary").measured["class_row_turns"] is True


def test_which_dimensions_turn_with_which_axis() -> None:
    def mutate(module: Any) -> None:
        embedding = tower(module).encoder.rotary_emb
        original = embedding.recomposition_frequencies
        embedding.recomposition_frequencies = lambda freq: original(freq.flip(2))

    straight, turned = (
        answer(plain(GEMMA4), "vision-rotary").measured,
        answer(run_of(GEMMA4, mutate), "vision-rotary").measured,
    )
    assert (straight["columns"], straight["rows"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (turned["columns"], turned["rows"]) == ([4, 5, 6, 7], [0, 1, 2, 3])
    assert straight["pairs"] == "halves"
    assert answer(plain(LLAMA4), "vision-rotary").measured["pairs"] == "adjacent"


def test_packed_rows() -> None:
    def picture(rows: int, length: int) -> Any:
        return SimpleNamespace(stream=[rows, length, 32])

    packed = SimpleNamespace(pictures=[picture(1, 20), picture(1, 30)], pair=picture(1, 50))
    assert _packed(packed).verdict == "yes"
    apart = SimpleNamespace(pictures=[picture(1, 20), picture(1, 30)], pair=picture(2, 30))
    assert _packed(apart).verdict == "no"


def test_numbers() -> None:
    """Figures that follow from the twins' sizes: a grid of 9 × 6 patches, pooled by 3 × 3; tiles of 16 × 16 pixels."""
    assert answer(plain(GEMMA4), "padded-patches").measured["padded"] == [18]
    pooled = answer(plain(GEMMA4), "pooled-projector")
    assert (pooled.measured["patches"], pooled.measured["image_tokens"]) == (54, 6)
    assert pooled.explained == {"side": "pooling_kernel_size"}
    assert answer(plain(GEMMA3), "pooled-projector").explained["image_tokens"] == "mm_tokens_per_image"
    assert answer(plain(LLAMA4), "tiled-images").measured["rows"] == [3, 1, 3]
    assert answer(plain(LLAMA4), "tiled-images").measured["global_row"] == "last"
    assert answer(plain(MOE), "standardized-features").measured["shift"] == "std_bias"


@pytest.mark.parametrize("twin", [GEMMA4, LLAMA4])
def test_the_model_is_left_as_it_was_and_a_second_run_agrees(twin: str) -> None:
    run = run_of(twin)
    module = run.model._module
    before = of_weights(module), _hooks(module)
    first = [answer(run, quirk.slug) for quirk in QUIRKS]
    assert (of_weights(module), _hooks(module)) == before
    again = run_of(twin)
    assert first == [answer(again, quirk.slug) for quirk in QUIRKS]


def _hooks(module: nn.Module) -> int:
    return sum(len(child._forward_hooks) + len(child._forward_pre_hooks) for child in module.modules())
