"""GGUF files: a small one written here, and the two real models of the `real` extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from probe.checkpoints import Loaded, Target, load, real, resolve, tokens
from probe.checkpoints.shipped import SHIPPED, Shipped
from probe.errors import ProbeError

from .conftest import PROMPT, logits


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _interleaved(weight: torch.Tensor, heads: int) -> np.ndarray:
    """llama.cpp stores the two halves of each head's rotary dimensions interleaved."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape).numpy()


@pytest.fixture
def small_gguf(tmp_path: Path, twin: Any) -> Path:
    """llama/tiny-tied as llama.cpp's converter would write it."""
    return _written(twin("llama", "tiny-tied"), tmp_path / "small.gguf")


def _written(loaded: Loaded, path: Path, without: str | None = None) -> Path:
    """A twin as a GGUF file, but for one tensor."""
    config = loaded.config
    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_rope_freq_base(1e4)
    out.add_rope_dimension_count(config.head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    vocabulary = sorted(loaded.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    out.add_token_list(["ab" if token == "<reserved_20>" else token for token, _ in vocabulary])
    out.add_token_types([1 if i >= tokens.FIRST_BYTE else 3 for _, i in vocabulary])
    out.add_token_merges(["a b"])
    out.add_bos_token_id(tokens.BOS)
    out.add_eos_token_id(tokens.EOS)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in loaded.module.named_parameters():
        if name == without:
            continue
        data = tensor.numpy()
        if "q_proj" in name:
            data = _interleaved(tensor, config.num_attention_heads)
        elif "k_proj" in name:
            data = _interleaved(tensor, config.num_key_value_heads)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight",)), data)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def test_conversion_keeps_the_weights_and_happens_once(small_gguf: Path, cache: Path, twin: Any) -> None:
    steps: list[tuple[str, float]] = []
    loaded = load(resolve(str(small_gguf)), progress=lambda label, share: steps.append((label, share)))
    original = twin("llama", "tiny-tied").module.state_dict()
    assert all(tensor.equal(original[name]) for name, tensor in loaded.module.state_dict().items())
    assert loaded.parameters == twin("llama", "tiny-tied").parameters and "small.gguf" in str(loaded.config_source)
    assert any(label.startswith("dequantising") for label, _ in steps)
    (kept,) = cache.iterdir()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in kept.iterdir()}
    assert not list(kept.glob("*.gguf"))
    steps.clear()
    assert (
        load(resolve(str(small_gguf)), progress=lambda label, share: steps.append((label, share))).digest
        == loaded.digest
    )
    assert not any(label.startswith("dequantising") for label, _ in steps)


def test_a_failed_conversion_leaves_nothing(small_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedModel

    def fails(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", fails)
    with pytest.raises(ProbeError, match="No space left"):
        load(resolve(str(small_gguf)))
    assert list(cache.iterdir()) == []


def test_an_interrupted_conversion_leaves_nothing_and_a_killed_one_is_swept(
    small_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = cache / "gguf-0123-c1.4194305.tmp"
    killed.mkdir(parents=True)

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(real, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(resolve(str(small_gguf)))
    assert list(cache.iterdir()) == []


def test_a_gguf_that_lacks_a_tensor(tmp_path: Path, cache: Path, twin: Any) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    broken = _written(twin("llama", "tiny-tied"), tmp_path / "broken.gguf", without=name)
    with pytest.raises(ProbeError, match=f"lacks weights its class needs .1, first {name}"):
        load(resolve(str(broken)))
    assert list(cache.iterdir()) == []


def test_truncated_gguf(small_gguf: Path, cache: Path) -> None:
    small_gguf.write_bytes(small_gguf.read_bytes()[:-5000])
    with pytest.raises(ProbeError, match="does not convert"):
        load(resolve(str(small_gguf)))


def test_damaged_part(cache: Path, monkeypatch: pytest.MonkeyPatch, small_gguf: Path) -> None:
    shipped = Shipped("pytest", (("pytest", "x.gguf.part00"),), sha256="0" * 64)
    monkeypatch.setitem(SHIPPED, "org/model", shipped)
    monkeypatch.setattr(real, "_part", lambda module, inner: small_gguf)
    with pytest.raises(ProbeError, match="wrong sha256"):
        real.converted(Target("llama", "org/model", "weights"))


def test_a_cache_that_cannot_be_written(small_gguf: Path, cache: Path) -> None:
    cache.write_text("no folder")
    with pytest.raises(ProbeError, match="another folder in PROBE_CACHE"):
        load(resolve(str(small_gguf)))


def test_not_enough_disk(small_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(ProbeError, match="PROBE_CACHE"):
        load(resolve(str(small_gguf)))


@pytest.mark.parametrize("hub_id", list(SHIPPED))
def test_real_weights_know_where_the_eiffel_tower_is(hub_id: str) -> None:
    if not real.installed(hub_id):
        pytest.skip(f"the `real` extra, which ships {hub_id}, is not installed")
    loaded = load(resolve(hub_id))
    assert loaded.target.kind == "weights" and loaded.dtype == "float32"
    assert loaded.tokenizer.decode([int(logits(loaded, PROMPT)[-1].argmax())]) == " Paris"
