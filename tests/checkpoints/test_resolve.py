"""What a user types, and the sentence where it means nothing."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from probe import registry
from probe.checkpoints import Target, hub, load, resolve
from probe.errors import ProbeError


def test_twins() -> None:
    assert resolve("tiny-interleaved") == Target("llama4_text", "tiny-interleaved", "tiny")
    assert resolve("tiny-grouped") == Target("falcon", "tiny-grouped", "tiny")
    assert resolve("tiny", "llama") == Target("llama", "tiny", "tiny")
    with pytest.raises(ProbeError, match=r"families have a twin 'tiny' \(afmoe, apertus, apertus1p5_text, …\)"):
        resolve("tiny")
    with pytest.raises(ProbeError, match=r"2 families have a twin 'tiny-moe' \(doge, gemma4_text\): say which"):
        resolve("tiny-moe")


def test_directory(saved: Path) -> None:
    assert resolve(str(saved)) == Target("llama", "my-llama", "weights", saved)
    with pytest.raises(ProbeError, match="belongs to the family llama"):
        resolve(str(saved), "gemma4_text")


def test_wrapper_is_of_its_text_models_family(tmp_path: Path, saved: Path) -> None:
    config = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(saved / "model.safetensors", tmp_path)
    assert resolve(str(tmp_path)).family == "gemma4_text"


def _config(folder: Path, saved: Path, **config: object) -> Path:
    """A directory with that config.json and some weights."""
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(saved / "model.safetensors", folder)
    return folder


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "qwen3"}, "qwen3"),
        ({"model_type": "modernbert-decoder"}, "modernbert-decoder"),
        ({"model_type": "qwen2_vl"}, "qwen2_vl_text"),
        ({"model_type": "llava", "text_config": {"model_type": "llama"}}, "llava"),
        ({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}}, "qwen3_vl_text"),
    ],
)
def test_a_family_without_a_module_and_a_text_model_that_stands_in_its_wrapper_only(
    config: dict[str, object], family: str, tmp_path: Path, saved: Path
) -> None:
    assert resolve(str(_config(tmp_path, saved, **config))).family == family


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "llava_next", "text_config": {"model_type": "llama"}}, "'llava_next', a wrapper.*llama whose"),
        ({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}}, "python -m probe qwen3_5_text"),
        ({"model_type": "glm4v"}, "text model of type 'glm4v_text'"),
        ({"model_type": "bert"}, "text model of type 'bert'"),
    ],
)
def test_a_wrapper_whose_encoder_cannot_be_probed_and_what_is_no_decoder(
    config: dict[str, object], says: str, tmp_path: Path, saved: Path
) -> None:
    with pytest.raises(ProbeError, match=says):
        resolve(str(_config(tmp_path, saved, **config)))


def test_a_listed_checkpoint_is_of_its_configs_family() -> None:
    name = "mistralai/Ministral-8B-Instruct-2410"
    assert resolve(name) == Target("mistral", name, "weights")
    with pytest.raises(ProbeError, match="belongs to the family mistral, not ministral"):
        resolve(name, "ministral")


def test_a_decoder_that_is_newer_than_the_table_is_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "table", dict)
    assert resolve("tiny", "qwen3") == Target("qwen3", "tiny", "tiny")
    about = registry.get("qwen3")
    assert (about.title, about.origin, about.checkpoints) == ("Qwen3", "transformers", ())
    loaded = load(Target("qwen3", "tiny", "tiny"))
    assert loaded.digest and type(loaded.module).__name__ == "Qwen3ForCausalLM"


def test_listed_hub_id_is_known_without_the_hub() -> None:
    assert resolve("google/gemma-4-E2B", offline=True) == Target("gemma4_text", "google/gemma-4-E2B", "weights")


def test_unlisted_hub_id_takes_its_configs_family(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_file", lambda hub_id, offline: saved / "config.json")
    assert resolve("someone/finetune") == Target("llama", "someone/finetune", "weights")


@pytest.mark.parametrize(
    ("name", "family", "says"),
    [
        ("tiny-mo", "gemma4_text", "nearest: tiny-moe"),
        ("tiny-group", "falcon", "nearest: tiny-grouped"),
        ("google-gemma-4-E2B", None, "nearest: google/gemma-4-E2B"),
        ("./nowhere", None, "no directory or GGUF file"),
        ("model.gguf", None, "no directory or GGUF file"),
        ("tiny", "gemma5_text", "gemma4_text"),
    ],
)
def test_nothing_of_that_name(name: str, family: str | None, says: str) -> None:
    with pytest.raises(ProbeError, match=says):
        resolve(name, family)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"model_type": "llama"', "does not parse"),
        ("[]", "not a JSON object"),
        ("\xff", "does not parse"),
        ("{}", "no `model_type`"),
        ('{"model_type": "lama"}', "does not know model_type 'lama'.*llama"),
    ],
)
def test_broken_or_foreign_config(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ProbeError, match=says):
        resolve(str(tmp_path))


def test_directory_without_config_or_weights(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="no config.json"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ProbeError, match="no \\*.safetensors"):
        resolve(str(tmp_path))


def _gguf(architecture: str) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = [
        text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("general.quantization_version") + struct.pack("<II", 4, 2),
        text("general.architecture") + struct.pack("<I", 8) + text(architecture),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


def test_gguf(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(_gguf("gemma3"))
    assert resolve(str(path)) == Target("gemma3_text", "some.gguf", "weights", path)
    path.write_bytes(_gguf("rwkv7"))
    with pytest.raises(ProbeError, match="rwkv7"):
        resolve(str(path))
    for broken in (b"GGUF", b"nonsense" * 8, _gguf("llama")[:-3]):
        path.write_bytes(broken)
        with pytest.raises(ProbeError, match="not a whole GGUF"):
            resolve(str(path))
    other = tmp_path / "weights.bin"
    other.write_bytes(b"")
    with pytest.raises(ProbeError, match="no GGUF file"):
        resolve(str(other))


def test_listing_and_resolving_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from probe import checkpoints as c; c.targets('gemma4_text'); c.missing('llama');"
        "c.resolve('google/gemma-4-E2B'); print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_listed_checkpoint_that_turns_out_to_be_of_another_family_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "snapshot", lambda hub_id, **_: saved)
    with pytest.raises(ProbeError, match="belongs to the family llama, not qwen3"):
        load(Target("qwen3", "someone/finetune", "weights"))
