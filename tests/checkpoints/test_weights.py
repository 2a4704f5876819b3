"""Local directories: read right whatever their layout, refused in one sentence where they are broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from probe.checkpoints import digest, load, require_device, resolve, weights
from probe.errors import ProbeError

from .conftest import logits


def _copy(saved: Path, to: Path) -> Path:
    return Path(shutil.copytree(saved, to / "copy"))


def test_saved_directory(saved: Path, twin: Any) -> None:
    steps: list[float] = []
    loaded = load(resolve(str(saved)), progress=lambda label, share: steps.append(share))
    original = twin("llama", "tiny")
    assert torch.equal(logits(loaded), logits(original))
    assert (loaded.digest, loaded.parameters, loaded.dtype) == (original.digest, original.parameters, "float32")
    assert loaded.target.id == "my-llama" and loaded.config_source is None and steps == sorted(steps) != []


def test_sharded_directory(tmp_path: Path, twin: Any) -> None:
    original = twin("gemma4_text", "tiny-moe")
    original.module.save_pretrained(tmp_path, max_shard_size="200KB")
    original.tokenizer.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = load(resolve(str(tmp_path)), device="cpu")
    assert loaded.task == "image-text-to-text" and loaded.digest == original.digest
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ProbeError, match=f"lacks {shard.name}"):
        resolve(str(tmp_path))


def test_published_dtype_is_kept_and_can_be_changed(tmp_path: Path, saved: Path, twin: Any) -> None:
    load(resolve(str(saved)), dtype="bfloat16").module.save_pretrained(tmp_path)
    loaded = load(resolve(str(tmp_path)))
    assert loaded.dtype == "bfloat16" and {p.dtype for p in loaded.module.parameters()} == {torch.bfloat16}
    assert loaded.tokenizer is None
    assert load(resolve(str(tmp_path)), dtype="float32").dtype == "float32"


def test_tied_weights(tmp_path: Path, twin: Any) -> None:
    original = twin("llama", "tiny-tied")
    original.module.save_pretrained(tmp_path)
    loaded = load(resolve(str(tmp_path)))
    assert loaded.parameters == original.parameters and loaded.digest == original.digest
    assert loaded.module.lm_head.weight is loaded.module.model.embed_tokens.weight


def test_spread_by_accelerate(saved: Path, twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{i}": "disk" if i else "cpu" for i in range(3)}
    monkeypatch.setattr(weights, "_placement", lambda device: places)
    loaded, original = load(resolve(str(saved)), device="cuda"), twin("llama", "tiny")
    assert loaded.module.hf_device_map == places and loaded.module.model.layers[1].mlp.up_proj.weight.is_meta
    assert (loaded.digest, loaded.parameters) == (original.digest, original.parameters)
    assert torch.equal(logits(loaded), logits(original))


def test_offloaded_weights_have_the_same_digest(saved: Path, twin: Any) -> None:
    from accelerate import cpu_offload

    loaded = load(resolve(str(saved)))
    cpu_offload(loaded.module, execution_device="cpu")
    assert any(p.is_meta for p in loaded.module.parameters())
    assert digest.of_weights(loaded.module) == twin("llama", "tiny").digest


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [(0, 200_000, "truncated or corrupt"), (0, 5, "truncated or corrupt"), (8, None, "truncated or corrupt")],
)
def test_damaged_safetensors(start: int, end: int | None, says: str, saved: Path, tmp_path: Path) -> None:
    broken = _copy(saved, tmp_path)
    data = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data[start:end])
    with pytest.raises(ProbeError, match=says):
        resolve(str(broken))


def test_header_that_lies(saved: Path, tmp_path: Path) -> None:
    broken = _copy(saved, tmp_path)
    data = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data.replace(b'"F32"', b'"F16"'))
    with pytest.raises(ProbeError, match="do not read"):
        load(resolve(str(broken)))


def test_missing_and_misshapen_tensors(saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = _copy(saved, tmp_path)
    tensors = load_file(saved / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ProbeError, match="1, first model.layers.1.mlp.up_proj.weight"):
        load(resolve(str(broken)))
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ProbeError, match=r"first model.layers.1.mlp.up_proj.weight: \[3, 3\] in the file, \[72, 48\] by"
    ):
        load(resolve(str(broken)))
    assert "LOAD REPORT" not in capfd.readouterr().err


def test_weights_of_another_model_than_the_configs(saved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    tensors = load_file(copy / "model.safetensors")
    save_file({f"other.{name}": tensor for name, tensor in tensors.items()}, copy / "model.safetensors")
    with pytest.raises(ProbeError, match=rf"and has others in their place \({len(tensors)}, first other\."):
        load(resolve(str(copy)))


def test_broken_tokenizer(saved: Path, tmp_path: Path) -> None:
    broken = _copy(saved, tmp_path)
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(ProbeError, match="tokenizer in .* does not load"):
        load(resolve(str(broken)))


def test_config_that_transformers_refuses(saved: Path, tmp_path: Path) -> None:
    broken = _copy(saved, tmp_path)
    config = json.loads((saved / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "num_attention_heads": "six"}))
    with pytest.raises(ProbeError, match="refuses this config.json"):
        load(resolve(str(broken)))


def test_index_without_a_map(saved: Path, tmp_path: Path) -> None:
    broken = _copy(saved, tmp_path)
    (broken / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ProbeError, match="maps no weights"):
        resolve(str(broken))


def test_too_large_for_memory(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Little:
        available = 1000

    monkeypatch.setattr(weights.psutil, "virtual_memory", Little)
    with pytest.raises(ProbeError, match="GB of memory"):
        load(resolve(str(saved)))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "Memory ran out"),
        (torch.OutOfMemoryError("CUDA out of memory"), "Memory ran out"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"), "Memory ran out"),
        (ImportError("compressed_tensors is missing"), "compressed_tensors.*install it"),
    ],
)
def test_load_that_breaks_off(error: Exception, says: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlamaForCausalLM

    def fails(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", fails)
    with pytest.raises(ProbeError, match=says):
        load(resolve(str(saved)))


@pytest.mark.parametrize(
    ("family", "attn", "said"),
    [("llama", "flash", "'flash' cannot be used here"), ("bloom", "sdpa", "'sdpa' cannot be used here .BloomFor")],
)
def test_an_attention_implementation_that_cannot_be_used(family: str, attn: str, said: str) -> None:
    with pytest.raises(ProbeError, match=said) as caught:
        load(resolve("tiny", family), attn=attn)
    assert str(caught.value).endswith("use eager or sdpa, or leave it out.")


def test_what_fails_in_a_load_otherwise_is_no_matter_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **more: Any) -> None:
        raise ValueError("something else")

    monkeypatch.setattr("probe.checkpoints.builds.load_twin", fails)
    with pytest.raises(ValueError, match="something else"):
        load(resolve("tiny", "llama"), attn="sdpa")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_device_on_which_nothing_can_run(device: str) -> None:
    with pytest.raises(ProbeError, match="not a device|Nothing can run|no CUDA device"):
        require_device(device)
    require_device("cpu")


def test_devices(saved: Path) -> None:
    with pytest.raises(ProbeError, match="not a device"):
        load(resolve(str(saved)), device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ProbeError, match="no CUDA device"):
            load(resolve(str(saved)), device="cuda")
