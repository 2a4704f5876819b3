"""The published configs: each builds its class on meta, with the parameters its source counted."""

from __future__ import annotations

import csv
from typing import Any

import pytest
import torch

from probe import registry
from probe.checkpoints import Target, classes, digest, load, missing, targets
from probe.checkpoints.published import ALIASES, CONFIGS, part, published, stem
from probe.errors import ProbeError

with (CONFIGS / "SOURCES.tsv").open() as _file:
    SOURCES = {row["file"]: row for row in csv.DictReader(_file, delimiter="\t")}
LISTED = [(f.name, c) for f in registry.families() for c in f.checkpoints if stem(c)]
BUILT = [(f, c) for f, c in LISTED if c in {target.id for target in targets(f)}]

TYPES = {"kimi_k2": "deepseek_v3", "llava": "llama"}
"""Families whose text model's config is another family's class in its published wrapper."""


@pytest.mark.parametrize(("family", "hub_id"), BUILT, ids=[hub_id for _, hub_id in BUILT])
def test_builds_on_meta_with_the_published_parameters(family: str, hub_id: str) -> None:
    loaded = load(Target(family, hub_id, "config"))
    source = SOURCES[f"{stem(hub_id)}.json"]
    about = registry.get(family)
    if about.path is None and part(str(stem(hub_id)), about.root, family):
        assert type(loaded.module).__name__ == registry.table()[family].class_name
        assert "the text model alone" in str(loaded.config_source)
    else:
        assert loaded.parameters == int(source["params"])
        assert type(loaded.module).__name__ == source["class"]
    assert loaded.config.get_text_config(decoder=True).model_type == TYPES.get(family, family)
    assert all(t.is_meta for t in loaded.module.state_dict().values())
    assert loaded.dtype in ("bfloat16", "float16", "float32")
    assert str(next(loaded.module.parameters()).dtype) == f"torch.{loaded.dtype}"
    assert loaded.tokenizer is None and loaded.config_source


def test_a_text_model_alone_is_as_large_as_its_wrapper_without_the_tower() -> None:
    config = classes.config_from(published("Qwen__Qwen3.5-0.8B").config)
    with torch.device("meta"):
        wrapper = classes.model_class(config)(config)
    wrapper.tie_weights()
    loaded = load(Target("qwen3_5_text", "Qwen/Qwen3.5-0.8B", "config"))
    tower = digest.parameters(wrapper.get_submodule("model.visual"))
    assert loaded.parameters == digest.parameters(wrapper) - tower and loaded.task == "text-generation"


def test_every_config_belongs_to_a_listed_checkpoint_or_a_default_twin() -> None:
    used = {f"{stem(hub_id)}.json" for _, hub_id in LISTED}
    twins = [twin for family in registry.families() for twin in family.twins.values()]
    used |= {f"{twin['config']}.json" for twin in twins if "config" in twin}
    assert used == {path.name for path in CONFIGS.glob("*.json")} == set(SOURCES)


def test_renamed_repositories_have_one_config_each() -> None:
    assert all((CONFIGS / f"{name}.json").is_file() for name in ALIASES.values())


def test_quantisation_is_left_out_and_said() -> None:
    entry = published("meta-llama__Llama-4-Maverick-17B-128E-Instruct-FP8")
    assert "quantization_config" not in entry.config and "quantization_config left out" in entry.source
    loaded = load(Target("llama4_text", "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "config"))
    assert not hasattr(loaded.config, "quantization_config")


def test_a_config_of_another_class_is_no_target_of_the_family_that_lists_it() -> None:
    (reason,) = [why for hub_id, why in missing("ministral") if hub_id == "mistralai/Ministral-8B-Instruct-2410"]
    assert "of model_type 'mistral'" in reason
    assert "of model_type" not in "".join(why for _, why in missing("qwen3"))


@pytest.mark.parametrize("family", registry.names())
def test_every_listed_checkpoint_is_a_target_or_missing_with_a_reason(family: str) -> None:
    about = registry.get(family)
    found = targets(family)
    absent = missing(family)
    ids = [target.id for target in found]
    assert len(set(ids)) == len(ids)
    assert sorted([*about.twins, *about.checkpoints]) == sorted([*ids, *(hub_id for hub_id, _ in absent)])
    assert all(reason.endswith(".") for _, reason in absent)
    kinds = [target.kind for target in found]
    assert kinds == sorted(kinds, key=["tiny", "config", "weights"].index)


def test_a_checkpoint_without_config_is_refused() -> None:
    with pytest.raises(ProbeError, match="no published config"):
        load(Target("gemma4_text", "google/gemma-4-31B", "config"))


def test_digest_is_that_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    target: Any = Target("llama", "meta-llama/Llama-3.2-1B-Instruct", "config")
    before = load(target).digest
    assert before == load(target).digest
    monkeypatch.setitem(published(str(stem(target.id))).config, "rope_theta", 1.0)
    assert load(target).digest != before
