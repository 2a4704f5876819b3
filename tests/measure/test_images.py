"""The way of an image, module by module: each row read and edited anew by hooks, and a model that is made otherwise
told otherwise. The snippet that sums attention on image tokens runs as a reader would run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from probe import registry
from probe.checkpoints import load, targets, tokens
from probe.checkpoints.images import processor
from probe.checkpoints.images import test_image as picture
from probe.measure.images import images
from probe.measure.run import measure
from probe.record.configs import wrapper_rows
from probe.render.recipes.images import sums
from probe.schema import Images, Station
from probe.standard import StandardizedTransformer
from probe.standard.inputs import IMAGE_PROMPT

TWINS = [
    (about.name, name)
    for about in registry.families()
    for name, options in about.twins.items()
    if about.root in tokens.SEEING or "vision" in options
]
"""Every twin whose wrapper sees."""

DEEPSTACK = {"qwen3_vl_text", "qwen3_vl_moe_text"}
UNREAD = {"llava": [0, 1]}
"""Encoder blocks that reach the logits, where those are not all."""

every_twin = pytest.mark.parametrize(("family", "name"), TWINS)


@cache
def model(family: str, name: str) -> StandardizedTransformer:
    return StandardizedTransformer(load(next(t for t in targets(family) if t.id == name), attn="eager"))


def watch(family: str, name: str) -> Images:
    found = images(measure(model(family, name)))
    assert found is not None
    return found


told = cache(watch)


@cache
def prompt(family: str, name: str) -> dict[str, torch.Tensor]:
    loaded = model(family, name).loaded
    reader = loaded.processor or processor(loaded.config)
    return dict(reader(text=IMAGE_PROMPT.format(image=tokens.IMAGE), images=[picture()], return_tensors="pt"))


def logits(module: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return module(**{key: tensor.clone() for key, tensor in inputs.items()}, use_cache=False).logits


@contextmanager
def hooked(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def slope(tensor: torch.Tensor) -> torch.Tensor:
    """Something to add: another number at each place."""
    return torch.linspace(-1, 1, tensor.numel()).view_as(tensor)


def rows(found: Images, **wanted: Any) -> list[Station]:
    return [row for row in found.stations if all(getattr(row, key) == value for key, value in wanted.items())]


def test_all_wrappers_whose_images_are_read_have_a_twin() -> None:
    assert {model(*twin).loaded.config.model_type for twin in TWINS} == tokens.SEEING


@every_twin
def test_the_way_has_patches_blocks_and_what_enters_the_text_model(family: str, name: str) -> None:
    found = told(family, name)
    assert found.mask_holds and found.image_tokens == int(
        (prompt(family, name)["input_ids"] == model(family, name)._module.config.image_token_id).sum()
    )
    for side in ("in", "out"):
        assert len(rows(found, role="patch embedding", side=side)) == 1
        [block] = rows(found, role="block", side=side)
        assert block.blocks == list(range(len(block.blocks or ()))) and len(block.blocks) > 1
        assert block.reaches == UNREAD.get(family, block.blocks)
    [entering] = rows(found, enters=[-1])
    assert entering.side == "out" and entering.edits
    if family in DEEPSTACK:
        assert [row.takes for row in found.stations if row.takes] == [[0, 1, 2], [2]]
    later = [row.enters for row in found.stations if row.enters and row.enters != [-1]]
    assert bool(later) == (family in DEEPSTACK) and all(after == [0, 1, 2] for after in later)
    assert [s for pattern in found.patterns for s in pattern.shape[-2:]] == found.inputs["input_ids"][-1:] * 2


@every_twin
def test_each_row_is_read_and_edited_by_hooks_of_its_own(family: str, name: str) -> None:
    module, inputs = model(family, name)._module, prompt(family, name)
    plain = logits(module, inputs)
    for row in told(family, name).stations:
        for index in row.blocks or [None]:
            part = module.get_submodule(row.path.format(i=index))
            seen: list[torch.Tensor] = []

            def before(_: Any, args: Any, kwargs: Any, row: Station = row, seen: Any = seen) -> Any:
                args = list(args)
                tensor = eval(row.element, {"args": args, "kwargs": kwargs})
                seen.append(tensor)
                exec(
                    f"{row.element} = tensor + slope",
                    {"args": args, "kwargs": kwargs, "tensor": tensor, "slope": slope(tensor)},
                )
                return tuple(args), kwargs

            def after(_: Any, __: Any, output: Any, row: Station = row, seen: Any = seen) -> None:
                tensor = eval(row.element, {"output": output})
                seen.append(tensor)
                tensor.add_(slope(tensor))

            hook = (
                part.register_forward_pre_hook(before, with_kwargs=True)
                if row.side == "in"
                else part.register_forward_hook(after)
            )
            with hooked(hook):
                edited = logits(module, inputs)
            assert list(seen[0].shape) == row.shape, row.path
            reaches = row.edits if row.reaches is None else index in row.reaches
            assert bool((edited - plain).abs().max() > 1e-6) == reaches, row.path


@every_twin
def test_the_snippet_sums_what_full_forwards_give(family: str, name: str) -> None:
    loaded = model(family, name).loaded
    space: dict[str, Any] = {
        "torch": torch,
        "model": loaded.module,
        "processor": loaded.processor or processor(loaded.config),
        "prompt": IMAGE_PROMPT.format(image=tokens.IMAGE),
        "image": picture(),
    }
    found = told(family, name)
    exec(sums(found).replace("max_new_tokens=3", "max_new_tokens=3, min_new_tokens=3"), space)
    assert [round(float(share.mean()), 9) for share in space["shares"]] == pytest.approx(found.shares, rel=0.06)
    ids, on_image = space["generated"].sequences, space["on_image"]
    assert len(space["steps"]) == 3
    for step, shares in enumerate(space["steps"]):
        length = len(on_image) + step
        inputs = {**space["inputs"], "input_ids": ids[:, :length], "attention_mask": torch.ones(1, length)}
        for key in ("mm_token_type_ids", "token_type_ids"):
            if key in inputs:
                inputs[key] = torch.nn.functional.pad(inputs[key], (0, step))
        with torch.no_grad():
            whole = loaded.module(**inputs, use_cache=False, output_attentions=True).attentions
        mask = torch.nn.functional.pad(on_image, (0, step))
        for pattern, share in zip(whole, shares, strict=True):
            torch.testing.assert_close(pattern[0, :, -1, mask].sum(-1), share, atol=1e-5, rtol=1e-4)


def test_the_block_that_llava_reads_and_the_row_it_leaves_out_are_told() -> None:
    """Its config asks for the stream before the last block, and for patches without the class row."""
    module = model("llava", "tiny")._module
    [entering] = [row for row in told("llava", "tiny").stations if row.takes]
    blocks = len(module.model.vision_tower.encoder.layers)
    assert module.config.vision_feature_layer == -2 and entering.takes == [blocks - 2]
    assert module.config.vision_feature_select_strategy == "default" and entering.dropped == "first"


def test_a_wrappers_own_entries_stand_beside_its_vision_config() -> None:
    rows = {row.name: row.value for row in wrapper_rows(model("llava", "tiny")) or []}
    assert rows["vision_feature_layer"] == -2 and rows["vision_config.num_hidden_layers"] == 3
    assert not any(name.startswith("text_config") for name in rows)
    merged = {row.name: row.value for row in wrapper_rows(model("qwen3_vl_text", "tiny")) or []}
    assert merged["vision_config.deepstack_visual_indexes"] == [0, 1, 2]


def test_what_the_encoder_leaves_on_the_model_is_put_back() -> None:
    module = model("qwen3_vl_text", "tiny")._module
    told("qwen3_vl_text", "tiny")
    before = module.model.rope_deltas
    watch("qwen3_vl_text", "tiny")
    assert module.model.rope_deltas is before


def test_features_that_no_text_block_gets_are_not_said_to_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    text = type(model("qwen3_vl_text", "tiny")._module.model.language_model)
    monkeypatch.setattr(text, "_deepstack_process", lambda self, hidden, *_: hidden)
    found = watch("qwen3_vl_text", "tiny")
    mergers = [row for row in found.stations if "deepstack" in row.path]
    assert mergers and all(row.enters is None and row.reaches == [] and not row.edits for row in mergers)


def test_features_that_enter_at_other_positions_are_told_from_the_mask() -> None:
    text = model("llava", "tiny")._module.model.language_model

    def shift(_: Any, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "inputs_embeds": kwargs["inputs_embeds"].roll(1, dims=1)}

    with hooked(text.register_forward_pre_hook(shift, with_kwargs=True)):
        found = watch("llava", "tiny")
    assert not found.mask_holds and not rows(found, enters=[-1])


def test_a_block_whose_output_transformers_keeps_is_edited_in_place() -> None:
    """LLaVA's projector reads a hidden state that a hook kept: a hook that comes later has to change that tensor."""
    [row] = rows(told("llava", "tiny"), role="block", side="out")
    assert row.in_place == [1]
    fresh = load(next(t for t in targets("llava") if t.id == "tiny"), attn="eager").module
    inputs = prompt("llava", "tiny")
    part = fresh.get_submodule(row.path.format(i=1))
    plain = logits(model("llava", "tiny")._module, inputs)
    with hooked(part.register_forward_hook(lambda _, __, output: 2 * output + 1)):
        assert (logits(fresh, inputs) - plain).abs().max() > 1e-3  # it came before any hook of transformers
    with hooked(part.register_forward_hook(lambda _, __, output: 2 * output + 1)):
        assert (logits(fresh, inputs) - plain).abs().max() == 0


def test_a_text_model_alone_has_no_way_of_an_image() -> None:
    assert images(measure(model("llama", "tiny"))) is None
