"""The words and the path of a tower: the seeds' facts, told from runs, and the published sizes told from configs."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from probe.checkpoints import load, targets
from probe.measure.run import Run, measure
from probe.measure.tower import TowerFacts, describe, describe_config
from probe.standard import StandardizedTransformer

GEMMA4, MOE, LLAMA4, GEMMA3 = (
    ("gemma4_text", "tiny-vision"),
    ("gemma4_text", "tiny-moe"),
    ("llama4_text", "tiny-vision"),
    ("gemma3_text", "tiny-vision"),
)
TWINS = (GEMMA4, MOE, LLAMA4, GEMMA3)
CONFIGS = {
    "google/gemma-4-E2B-it": GEMMA4,
    "google/gemma-4-26B-A4B": MOE,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": LLAMA4,
    "google/gemma-3-4b-it": GEMMA3,
}


def model(family: str, checkpoint: str) -> StandardizedTransformer:
    return StandardizedTransformer(load(next(target for target in targets(family) if target.id == checkpoint)))


@cache
def run_of(twin: tuple[str, str]) -> Run:
    return measure(model(*twin))


@cache
def told(twin: tuple[str, str]) -> TowerFacts:
    return describe(run_of(twin))


@cache
def of_config(checkpoint: str) -> TowerFacts:
    twin = CONFIGS[checkpoint]
    return describe_config(model(twin[0], checkpoint), told(twin))


@pytest.mark.parametrize("twin", TWINS)
def test_every_value_on_the_path_was_read_with_that_shape(twin: tuple[str, str]) -> None:
    run = run_of(twin)
    seen = {(key.name, tuple(value.shape)) for key, value in run.readings.items() if hasattr(value, "shape")}
    path = told(twin).path
    named = [(node.value, tuple(node.shape)) for node in path if node.value and node.shape]
    assert len(named) >= 3
    assert set(named) <= seen
    assert [node.repeat for node in path if node.repeat] == [len(run.vision or ())]


@pytest.mark.parametrize(
    ("twin", "labels"),
    [
        (GEMMA4, ["image", "patch_embed", "layers", "pooler", "projector", "image_features", "layers[0].input"]),
        (GEMMA3, ["image", "patch_embed", "layers", "norm", "projector", "image_features", "layers[0].input"]),
        (
            LLAMA4,
            ["image", "patch_embed", "layernorm_pre", "layers", "norm", "vision_adapter", "projector", "image_features"]
            + ["layers[0].input"],
        ),
    ],
)
def test_stations_in_order(twin: tuple[str, str], labels: list[str]) -> None:
    assert [node.label for node in told(twin).path] == labels


FACTS: dict[tuple[str, str], dict[str, list[str]]] = {
    GEMMA4: {
        "rows": ["One row an image", "9 × 6 = 54 patches and 18 padded", "up to 72", "image_position_ids", "(-1, -1)"],
        "positions": ["input_proj", "position_embedding_table [2, 24, 32]", "0 to 3 by the patch's column, 4 to 7"],
        "masking": ["all 54 patches", "18 padded entries were masked as keys"],
        "final_norm": ["None: vision.tower_output is the last block's stream", "3 × 3 patches, times 5.657"],
    },
    MOE: {"final_norm": ["shifted and scaled by std_bias and std_scale"]},
    LLAMA4: {
        "rows": [
            "One row a tile",
            "2 tiles and, last, the whole image",
            "16 patches (4 × 4) and then the class row: 17",
        ],
        "positions": [
            "positional_embedding_vlm [17, 32]",
            "class_embedding",
            "layernorm_pre",
            "class row does not turn",
        ],
        "masking": ["all 17 entries", "none of the 2 other rows: tiles do not see one another"],
        "final_norm": ["layernorm_post is vision.norm, a LayerNorm", "dropped before vision_adapter", "become 4 image"],
    },
    GEMMA3: {
        "rows": ["One row an image, whatever its size", "36 patches (6 × 6)"],
        "positions": ["position_embedding.weight [36, 32]", "Nothing in the attention turns"],
        "masking": ["all 36 patches"],
        "final_norm": ["post_layernorm is vision.norm", "become 9 image tokens"],
    },
}


@pytest.mark.parametrize("twin", TWINS)
def test_facts_of_a_run(twin: tuple[str, str]) -> None:
    for part, wanted in FACTS[twin].items():
        for phrase in wanted:
            assert phrase in getattr(told(twin), part)


@pytest.mark.parametrize(
    ("checkpoint", "part", "wanted"),
    [
        ("google/gemma-4-E2B-it", "rows", "2520 entries"),
        ("google/gemma-4-E2B-it", "positions", "[2, 10240, 768]"),
        ("google/gemma-4-E2B-it", "positions", "0 to 31 by the patch's column, 32 to 63"),
        ("google/gemma-4-26B-A4B", "final_norm", "times 33.94"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "rows", "576 patches (24 × 24) and then the class row: 577"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "positions", "[577, 1408]"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "final_norm", "576 patches of a row become 144 image tokens"),
        ("google/gemma-3-4b-it", "rows", "4096 patches (64 × 64)"),
        ("google/gemma-3-4b-it", "final_norm", "4096 patches of a row become 256 image tokens"),
    ],
)
def test_published_sizes(checkpoint: str, part: str, wanted: str) -> None:
    assert wanted in getattr(of_config(checkpoint), part)


@pytest.mark.parametrize("checkpoint", CONFIGS)
def test_a_config_says_whose_run_it_leans_on_and_gives_no_measured_shape(checkpoint: str) -> None:
    found = of_config(checkpoint)
    for part in (found.rows, found.positions, found.masking, found.final_norm):
        assert f"run of {CONFIGS[checkpoint][1]}" in part
    assert all(node.shape is None for node in found.path)
    assert max(node.repeat or 0 for node in found.path) == model(CONFIGS[checkpoint][0], checkpoint).vision.num_layers


@pytest.mark.parametrize("twin", TWINS)
def test_a_run_speaks_of_no_other_run(twin: tuple[str, str]) -> None:
    found = told(twin)
    assert not re.search(r"run of", " ".join((found.rows, found.positions, found.masking, found.final_norm)))


def test_the_words_follow_the_weights() -> None:
    """A position table of zeros adds nothing, whatever the module tree says; a lost class vector is not named."""
    sees: Any = model(*GEMMA3)
    sees._module.model.vision_tower.embeddings.position_embedding.weight.data.zero_()
    assert "Nothing is added to them before the blocks" in describe(measure(sees)).positions
