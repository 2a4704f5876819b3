"""The selector's entries, and checkpoints that bring less than a published one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from probe.checkpoints import load, real, resolve, targets
from probe.errors import ProbeError
from probe.record.about import about, listed
from probe.registry import get
from probe.standard import StandardizedTransformer
from probe.standard.inputs import prepare


def test_a_record_of_real_weights_is_listed_as_such_where_they_are_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(real, "installed", lambda hub_id: False)
    kinds = {entry.id: entry.kind for entry in listed("llama", get("llama").checkpoints)}
    assert kinds["HuggingFaceTB/SmolLM2-135M-Instruct"] == "weights"
    assert kinds["HuggingFaceTB/SmolLM2-360M-Instruct"] == "config"


def test_a_family_without_a_module_has_a_title_and_a_list_and_no_words() -> None:
    found = about(SimpleNamespace(TITLE="x", CHECKPOINTS=(), RENAME={}), "falcon", "A subtitle.")
    assert (found.title, found.subtitle) == ("Falcon", "A subtitle.")
    assert (found.module, found.doc, found.declared) == ("", "", [])
    kinds = {entry.id: entry.kind for entry in found.checkpoints}
    assert list(kinds)[0] == "tiiuae/falcon-7b" == get("falcon").checkpoints[0]
    assert kinds["tiiuae/falcon-7b"] == "config" and kinds["tiny-alibi"] == "tiny" and "missing" in kinds.values()
    assert all(bool(entry.reason) == (entry.kind == "missing") for entry in found.checkpoints)


def test_a_folder_without_a_tokenizer_runs_on_token_ids(tmp_path: Path) -> None:
    load(next(target for target in targets("llama") if target.id == "tiny")).module.save_pretrained(tmp_path)
    model = StandardizedTransformer(load(resolve(str(tmp_path), "llama")))
    text, inputs = prepare(model)
    assert "no tokenizer" in text and inputs["input_ids"].shape == (1, 32)
    with pytest.raises(ProbeError, match="has no tokenizer, so a prompt cannot be read"):
        prepare(model, "Paris")


def test_an_empty_prompt_is_refused() -> None:
    model = StandardizedTransformer(load(next(target for target in targets("llama") if target.id == "tiny")))
    with pytest.raises(ProbeError, match="The prompt is empty"):
        prepare(model, " ")


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_told_before_anything_is_built(device: str) -> None:
    with pytest.raises(ProbeError, match="not a device of torch|no CUDA device"):
        load(next(target for target in targets("llama") if target.id == "tiny"), device=device)
