"""Real trained weights, run for real: identities on every block, and an answer everybody knows."""

from __future__ import annotations

from functools import cache

import pytest

from probe.checkpoints import load, resolve
from probe.measure import collect
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer
from probe.store import read_json, record_path

REAL = {"llama": "HuggingFaceTB/SmolLM2-135M-Instruct", "gemma3_text": "google/gemma-3-270m"}
PROMPT = "The Eiffel Tower is in the city of"


@cache
def _run(family: str) -> Run:
    model = StandardizedTransformer(load(resolve(REAL[family], family), attn="eager", dtype="float32"))
    return measure(model, PROMPT)


@pytest.mark.parametrize("family", REAL)
def test_every_identity_holds_on_every_block(family: str) -> None:
    run = _run(family)
    found, _ = collect.all_identities(run)
    assert [identity.name for identity in found if not identity.holds] == []
    sums = [identity for identity in found if identity.name == "block sum"]
    assert [identity.blocks for identity in sums] == [list(range(len(run.text)))]


@pytest.mark.parametrize("family", REAL)
def test_paris_comes_first(family: str) -> None:
    run = _run(family)
    best = int(run.root("next_token_probs")[0].argmax())
    assert run.model.tokenizer.decode([best]) == " Paris"


@pytest.mark.parametrize("family", REAL)
def test_the_committed_record_is_of_these_weights(family: str) -> None:
    committed = read_json(record_path(family, REAL[family]))
    run = _run(family)
    assert committed["checkpoint"]["kind"] == "weights"
    assert committed["checkpoint"]["digest"] == run.model.loaded.digest
    assert all(identity["holds"] for identity in committed["identities"])
    assert all(value["reads"] for value in committed["values"] if value["hf"])
