"""The derived wiring of forty-one families against a table of known answers: topology, kinds of sublayers, norms."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from probe.checkpoints import factory
from probe.checkpoints.factory.check import stack
from probe.wiring.anatomy import BlockAnatomy, derive
from probe.wiring.sums import text

Sublayer = tuple[str, str, str]

STANDARD_NAMES = {
    "gpt2": {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"},
    "gpt_neo": {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"},
    "mamba": {"norm": "input_layernorm"},
    "opt": {"self_attn_layer_norm": "input_layernorm"},
}
"""The table gives these families' norms by their standard names."""

DIFFERENT: dict[str, tuple[set[Sublayer], set[Sublayer], str]] = {
    "gemma4_text": (
        {("branch", "", "post_per_layer_input_norm")},
        {("moe", "pre_feedforward_layernorm", "post_feedforward_layernorm")},
        "the run also shows the third term, which the table leaves out; the mixture is on another twin (tiny-moe)",
    ),
    "llama4_text": (
        set(),
        {("mlp", "post_attention_layernorm", "")},
        "the default twin is Scout's, a mixture on every block; Maverick's dense blocks are on tiny-interleaved",
    ),
    "opt": (
        {("attention", "", ""), ("mlp", "", "")},
        set(),
        "OPT-350m norms the stream after each add, so its sublayers read the stream as it is; the table has the others",
    ),
}
"""Family -> (found beyond the table, in the table and not found, why)."""


def _table() -> tuple[dict[str, str], dict[str, set[Sublayer]]]:
    topology: dict[str, str] = {}
    sublayers: dict[str, set[Sublayer]] = defaultdict(set)
    with (Path(__file__).parent / "wiring.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            topology[row["model_type"]] = row["topology"]
            sublayers[row["model_type"]].add((row["kind"], row["pre_norm"], row["post_norm"]))
    return topology, sublayers


TOPOLOGY, SUBLAYERS = _table()


def _anatomy(model_type: str) -> list[BlockAnatomy]:
    found = []
    for name in factory.default_twins(model_type):
        module = factory.build_default(model_type, name)
        inputs = factory.default_inputs(module)
        _, blocks = stack(module)
        found += derive(list(blocks), lambda module=module, inputs=inputs: module(**inputs))
    return found


@pytest.mark.parametrize("model_type", sorted(TOPOLOGY))
def test_the_derived_wiring_is_the_tables(model_type: str) -> None:
    anatomy = _anatomy(model_type)
    names = STANDARD_NAMES.get(model_type, {})
    terms = [term for block in anatomy for term in block.terms]
    found = {
        (term.kind, *(names.get(norm or "", norm or "") for norm in (term.pre_norm, term.post_norm))) for term in terms
    }
    beyond, absent, _ = DIFFERENT.get(model_type, (set(), set(), ""))
    assert found - SUBLAYERS[model_type] == beyond
    assert SUBLAYERS[model_type] - found == absent
    assert {block.topology for block in anatomy} == {TOPOLOGY[model_type]}


def test_several_lanes_are_mixed_and_written_to() -> None:
    """The table gives this identity in words."""
    written = {text(block.tree, "x", ["attention", "mlp"]) for block in _anatomy("deepseek_v4")}
    assert written == {"mlp_combᵀ · (attention_combᵀ · x + attention_post ⊗ attention) + mlp_post ⊗ mlp"}


def test_what_is_added_for_one_sublayer_alone_is_told() -> None:
    """Zamba's shared attention is added to what the mixer reads, and the stream goes past that add."""
    fed = [[term.fed_by(block.terms) for term in block.terms] for block in _anatomy("zamba2")]
    assert fed[:2] == [[[]], [["shared_transformer", "linear"]]]
    for name in ("llama", "falcon_h1", "deepseek_v4", "gemma4_text"):
        assert not any(term.fed_by(block.terms) for block in _anatomy(name) for term in block.terms)
