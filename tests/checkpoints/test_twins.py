"""The tiny twins: pinned, lively, and of the published checkpoint's kind."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
import torch

from probe import registry
from probe.checkpoints import Target, digest, fill, load, twins
from probe.checkpoints.published import CONFIGS
from probe.errors import ProbeError

from .conftest import PROMPT, logits

TWINS = [(family, name) for family in registry.modules() for name in registry.get(family).twins]
each_twin = pytest.mark.parametrize(("family", "name"), TWINS, ids=[f"{f}-{n}" for f, n in TWINS])


@each_twin
def test_is_the_pinned_one(family: str, name: str) -> None:
    pinned = json.loads(twins.LOCK.read_text())
    assert digest.of_weights(twins.build(family, name)) == pinned[f"{family}/{name}"], (
        "the twin changed; if that was meant, pin it anew: python -m probe.checkpoints.pin"
    )


def test_lock_holds_the_twins_and_no_others() -> None:
    assert sorted(json.loads(twins.LOCK.read_text())) == sorted(f"{family}/{name}" for family, name in TWINS)


def test_another_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "SEED", "another seed")
    with pytest.raises(ProbeError, match="probe.checkpoints.pin"):
        load(Target("llama", "tiny", "tiny"))


@each_twin
def test_is_lively(family: str, name: str, twin: Any) -> None:
    tensors = {k: v for k, v in twin(family, name).module.state_dict().items() if v.is_floating_point()}
    assert all(v.dtype is torch.float32 for v in tensors.values())
    for key, tensor in tensors.items():
        assert torch.isfinite(tensor).all(), key
        assert not ((tensor == 0) | (tensor == 1)).any(), key
        assert tensor.numel() == 1 or tensor.std() > 0.02, key
    tied = {v.data_ptr() for v in tensors.values()}
    values = Counter(tuple(v.flatten()[:4].tolist()) for v in tensors.values())
    assert len(values) == len(tied), "two tensors hold the same numbers"


@each_twin
def test_activations_stay_in_range(family: str, name: str, twin: Any) -> None:
    loaded = twin(family, name)
    stream: list[torch.Tensor] = []
    blocks = (
        loaded.module.get_decoder().get_submodule("layers" if family != "llama4_text" else "model.layers")
        if not hasattr(loaded.module.get_decoder(), "layers")
        else loaded.module.get_decoder().layers
    )
    hooks = [
        block.register_forward_hook(lambda m, i, out: stream.append(out[0] if isinstance(out, tuple) else out))
        for block in blocks
    ]
    found = logits(loaded)
    for hook in hooks:
        hook.remove()
    assert len(stream) == loaded.config.get_text_config().num_hidden_layers
    assert all(0.3 < x.std() < 20 for x in stream)
    assert torch.isfinite(found).all() and 0.5 < found.std() < 10
    cap = getattr(loaded.config.get_text_config(), "final_logit_softcapping", None)
    if cap:
        uncapped = cap * torch.atanh(found / cap)
        assert (uncapped.abs() < cap).float().mean() > 0.99
        assert (uncapped - found).abs().max() > 0.05, "the cap does nothing"


@each_twin
def test_has_two_blocks_of_every_shape_and_short_windows(family: str, name: str, twin: Any) -> None:
    config = twin(family, name).config.get_text_config()
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    shapes: Counter[Any] = Counter()
    state = twin(family, name).module.state_dict()
    prefix = next(k.split("layers.0.")[0] for k in state if ".layers.0." in k and "vision" not in k)
    for i, kind in enumerate(types):
        head = f"{prefix}layers.{i}."
        shapes[kind, tuple((k.removeprefix(head), tuple(v.shape)) for k, v in state.items() if k.startswith(head))] += 1
    assert min(shapes.values()) >= 2
    for window in ("sliding_window", "attention_chunk_size"):
        assert (getattr(config, window, None) or 0) < len(PROMPT) / 2


@each_twin
def test_keeps_the_published_flags(family: str, name: str, twin: Any) -> None:
    spec = twins.spec(family, name)
    raw = json.loads((CONFIGS / f"{spec['config']}.json").read_text())
    ours = twin(family, name).config
    pairs = [(raw.get("text_config", raw), ours.get_text_config())]
    if "part" not in spec and "vision_config" in raw:
        pairs.append((raw["vision_config"], ours.vision_config))
    for published, config in pairs:
        for key, value in published.items():
            if isinstance(value, bool) or (isinstance(value, str) and "dtype" not in key):
                if hasattr(config, key) and not key.startswith("_"):
                    assert getattr(config, key) == value, key
    text, small = pairs[0][0], spec["text"]
    if "num_key_value_heads" in text:
        fewer = text["num_key_value_heads"] < text["num_attention_heads"]
        assert (small["num_key_value_heads"] < small["num_attention_heads"]) == fewer


def test_moe_twins_use_several_experts(twin: Any) -> None:
    chosen: dict[str, set[int]] = {}
    for family, name, router in (
        ("gemma4_text", "tiny-moe", "model.language_model.layers.0.router"),
        ("llama4_text", "tiny-vision", "language_model.model.layers.0.feed_forward.router"),
        ("llama4_text", "tiny-interleaved", "language_model.model.layers.1.feed_forward.router"),
    ):
        loaded = twin(family, name)
        got: list[Any] = []
        hook = loaded.module.get_submodule(router).register_forward_hook(lambda m, i, out, got=got: got.append(out))
        logits(loaded)
        hook.remove()
        indices = got[0][2] if family == "gemma4_text" else got[0][1].argmax(-1)
        chosen[name] = set(indices.flatten().tolist())
        assert len(chosen[name]) >= 3, name


def test_clipping_bites_on_some_values_and_not_on_most(twin: Any) -> None:
    loaded = twin("gemma4_text", "tiny-vision")
    from probe.checkpoints.images import test_image

    shares: list[float] = []

    def seen(module: Any, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        x = args[0]
        shares.append(((x < module.input_min) | (x > module.input_max)).float().mean().item())

    clipped = [m for m in loaded.module.modules() if hasattr(m, "input_min")]
    hooks = [m.register_forward_hook(seen) for m in clipped]
    inputs = loaded.processor(text="<image> What is this?", images=[test_image()], return_tensors="pt")
    with torch.no_grad():
        loaded.module(**inputs)
    for hook in hooks:
        hook.remove()
    assert len(clipped) == 14 and max(shares) < 0.5 and sum(share > 0 for share in shares) >= 7


def test_a_tensors_numbers_depend_on_its_name_alone() -> None:
    shape = torch.Size([7, 5])
    assert fill.uniform("a.weight", shape).equal(fill.uniform("a.weight", shape))
    assert not fill.uniform("a.weight", shape).equal(fill.uniform("b.weight", shape))
    many = fill.uniform("c.weight", torch.Size([100_000]))
    assert abs(many.mean()) < 0.01 and math.isclose(many.std().item(), 3**-0.5, abs_tol=0.01)


def test_the_other_blocks_keep_their_weights_when_one_is_added() -> None:
    more = twins.build("llama", "tiny", {"num_hidden_layers": 4}).state_dict()
    for key, tensor in twins.build("llama", "tiny").state_dict().items():
        assert more[key].equal(tensor), key


def test_overrides_reach_text_and_vision() -> None:
    config = twins.build("gemma4_text", "tiny-vision", {"text_config.sliding_window": 3}).config
    assert config.text_config.sliding_window == 3
    config = twins.build_config("llama4_text", "tiny", {"attention_chunk_size": 5})
    assert config.attention_chunk_size == 5


def test_llama4_wrapper_still_needs_its_repair(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.modeling_outputs import MoeCausalLMOutputWithPast

    loaded = twin("llama4_text", "tiny-vision")
    monkeypatch.delattr(MoeCausalLMOutputWithPast, "image_outputs")
    with pytest.raises(AttributeError, match="image_outputs"):
        logits(loaded)


def test_unknown_twin_names_the_others() -> None:
    with pytest.raises(ProbeError, match="tiny-moe"):
        twins.build("gemma4_text", "tiny-audio")


def test_dtype_and_attention_are_as_asked() -> None:
    loaded = load(Target("gemma4_text", "tiny-vision", "tiny"), attn="sdpa", dtype="bfloat16")
    assert {p.dtype for p in loaded.module.parameters()} == {torch.bfloat16} and loaded.dtype == "bfloat16"
    assert loaded.config.text_config._attn_implementation == loaded.config.vision_config._attn_implementation == "sdpa"
    assert not loaded.module.training and not any(p.requires_grad for p in loaded.module.parameters())
    with pytest.raises(ProbeError, match="int8"):
        load(Target("llama", "tiny", "tiny"), dtype="int8")
