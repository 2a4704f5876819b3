"""Records: made twice they are the same bytes, and the committed ones are what a probe finds now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe import registry
from probe.checkpoints import Target, load, targets
from probe.errors import ProbeError
from probe.experiments import some
from probe.record.assembled import probe_target
from probe.record.carried import carried, evidence, twin_for
from probe.record.findings import forget, twin
from probe.schema import Evidence, Record
from probe.standard import StandardizedTransformer
from probe.store import canonical, read_json, record_path

FAMILIES = ("gemma3_text", "gemma4_text", "llama", "llama4_text")
BUILT = [target for family in FAMILIES for target in targets(family) if target.kind != "weights"]

DERIVED = ("bloom", "deepseek_v4", "falcon", "gpt2", "mamba2", "nemotron_h", "olmo2", "qwen3_next", "rwkv", "stablelm")
"""Families without a module, of different kinds: `python -m probe check` measures all the others."""
SAMPLE = [target for family in DERIVED for target in targets(family) if target.kind != "weights"]

COMMITTED = sorted(record_path("llama", "tiny").parents[1].glob("*/*.json"))


@pytest.mark.parametrize("name", ["tiny-vision", "google/gemma-4-26B-A4B"])
def test_two_probes_give_the_same_bytes(name: str) -> None:
    target = next(target for target in targets("gemma4_text") if target.id == name)
    texts = []
    for _ in range(2):
        forget()
        texts.append(canonical(probe_target(target).as_json()))
    assert texts[0] == texts[1]


def _without_errors(value: Any) -> Any:
    """A record without the size of rounding errors, which is the processor's and not the model's."""
    if isinstance(value, dict):
        dropped = {"max_abs_error", "edit"}
        if value.get("name", "").startswith("eager_sdpa"):
            dropped |= {"value", "statement"}
        return {key: _without_errors(item) for key, item in value.items() if key not in dropped}
    if isinstance(value, list):
        return [_without_errors(item) for item in value]
    return value


@pytest.mark.parametrize("target", BUILT + SAMPLE, ids=lambda target: f"{target.family}-{target.id}")
def test_a_committed_record_is_what_a_probe_finds(target: Target) -> None:
    committed = read_json(record_path(target.family, target.id))
    if committed["checkpoint"]["kind"] == "weights":
        pytest.skip("the committed record is of real weights, which tests/measure/test_real.py runs")
    found = probe_target(target).as_json()
    for part in ("about", "checkpoint", "provenance", "evidence"):
        committed.pop(part), found.pop(part)
    assert _without_errors(committed) == _without_errors(found)


def test_every_decoder_has_a_committed_record_that_ran() -> None:
    ran = {path.parent.name for path in COMMITTED if read_json(path)["checkpoint"]["kind"] != "config"}
    assert set(registry.names()) == ran


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_sum_of_every_block_of_a_committed_record_holds(path: Path) -> None:
    committed = Record.model_validate(read_json(path))
    assert [identity.name for identity in committed.identities if not identity.holds] == []
    if committed.checkpoint.kind != "config":
        sums = [identity.blocks or [] for identity in committed.identities if identity.name == "block sum"]
        assert sorted(index for blocks in sums for index in blocks) == list(range(len(committed.blocks)))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_null_of_a_committed_record_has_its_reason_and_nothing_built_is_called_read(path: Path) -> None:
    committed = Record.model_validate(read_json(path))
    values = [*committed.values, *(committed.vision.values if committed.vision else [])]
    for value in values:
        if committed.checkpoint.kind == "config" and value.hf is not None:
            assert value.reads is None and value.edits is None and value.shape is None and value.why
        if committed.checkpoint.kind == "tiny" and value.hf is not None:
            assert value.reads is True, value.name
            assert value.edits is True or value.why, value.name


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_sentence_of_a_committed_record_and_its_keys_say_the_same(path: Path) -> None:
    committed = Record.model_validate(read_json(path))
    for fact in committed.facts:
        blocks = [block for block in fact.measured.get("blocks") or [] if isinstance(block, int)]
        if blocks and not fact.name.startswith("score_scale_"):
            assert _names(fact.statement.lower(), blocks, committed), fact.name
    for value in [*committed.values, *(committed.vision.values if committed.vision else [])]:
        assert (value.lack is None) == (value.needs is None), value.name
        assert value.code is None or f"the PyTorch code of {value.code}:" in (value.reason or ""), value.name


def _names(statement: str, blocks: list[int], record: Record) -> bool:
    """Whether a sentence is of just these blocks, in one of the ways to say so."""
    recurrent = [
        index
        for index, shape in enumerate(record.blocks)
        if any(sublayer.kind == "mixer" for sublayer in record.shapes[shape].sublayers)
    ]
    if "every block with a recurrence" in statement:
        return blocks == recurrent and len(recurrent) < len(record.blocks)
    told = some(blocks, len(record.blocks))
    return told in statement or (told == "every block" and "any one block," in statement)


def test_a_config_whose_blocks_no_twin_has_is_refused_with_what_to_do() -> None:
    target = next(target for target in targets("llama4_text") if target.id.endswith("FP8"))
    model = StandardizedTransformer(load(target))
    mixture = model.layers[1]._module
    mixture.feed_forward.add_module("second_shared_expert", type(mixture.feed_forward.shared_expert)(model.text_config))
    with pytest.raises(ProbeError, match="No tiny twin of llama4_text has the class .* all the block shapes"):
        twin_for(model)


def test_the_likest_twin_stands_behind_a_config() -> None:
    behind = {
        target.id: read_json(record_path(target.family, target.id))["evidence"]["twin"]
        for target in BUILT
        if target.kind == "config" and target.family == "llama" and target.id.startswith("meta-llama")
    }
    assert behind["meta-llama/Llama-3.1-8B-Instruct"] == "tiny"
    assert behind["meta-llama/Llama-3.2-1B-Instruct"] == "tiny-tied"
    assert behind["meta-llama/Llama-2-7b-chat-hf"] == "tiny-mha"


def test_a_window_that_one_of_the_two_lacks_is_told() -> None:
    target = next(target for target in targets("mistral") if target.id == "mistralai/Mistral-7B-Instruct-v0.3")
    model = StandardizedTransformer(load(target))
    told = {name: evidence(model, twin("mistral", name), [0] * 32, None).differs for name in ("tiny", "tiny-full")}
    assert told == {"tiny": ["sliding_window is None, on the twin a number"], "tiny-full": []}


def test_differing_flags_are_told() -> None:
    target = next(target for target in targets("gemma4_text") if target.id == "google/gemma-4-E4B-it")
    model = StandardizedTransformer(load(target))
    _, behind, blocks, tower = twin_for(model)
    assert isinstance(behind, Evidence)
    assert len(blocks) == 42 and tower is not None
    assert any("use_double_wide_mlp" in entry for entry in behind.differs)


def test_a_number_that_a_config_leaves_to_the_class_is_what_the_built_modules_hold() -> None:
    target = next(target for target in targets("qwen3_vl_text") if target.id == "Qwen/Qwen3-VL-8B-Instruct")
    model = StandardizedTransformer(load(target))
    assert "mrope_section" not in model.text_config.rope_parameters

    def streams() -> tuple[str, object, dict[str, str]]:
        behind, _, blocks, _ = twin_for(model)
        found = carried(behind.text, blocks, model, vision=False).experiments
        quirk = next(experiment for experiment in found if experiment.slug == "multimodal-rotary")
        return quirk.verdict, quirk.measured.get("pairs"), quirk.explained

    path, rotary = next((p, m) for p, m in model._module.named_modules() if "mrope_section" in vars(m))
    assert streams() == ("yes", rotary.mrope_section, {"pairs": f"{path}.mrope_section"})
    model._module.lm_head.mrope_section = [1, 2, 3]
    assert streams() == ("inconclusive", None, {})
