"""One colour for a value in diagram, table, equation and picture."""

from __future__ import annotations

import re

import pytest

from probe.render.diagram.model import Reader
from probe.render.figures import equation, model_strip
from probe.render.roles import row_role, term_role
from probe.render.standing import Standing
from probe.schema import Record
from probe.store import read_record
from tests.render.conftest import ROOT

FAMILIES = ("llama", "mixtral", "deepseek_v3", "gemma4_text", "jamba", "mamba2", "granite", "olmo2")


@pytest.fixture(params=FAMILIES)
def record(request: pytest.FixtureRequest) -> Record:
    return read_record(ROOT / "site_src" / "records" / request.param / "tiny.json")


def test_a_contribution_has_its_drawings_colour_in_the_blocks_equation_and_in_its_row(record: Record) -> None:
    for index in dict.fromkeys(record.blocks):
        shape = record.shapes[index]
        mine = [i for i, s in enumerate(record.blocks) if s == index]
        block = Reader(shape, index, mine, record.values, "model.", "text").read()
        for lane in [lane for group in block.groups for lane in group]:
            assert lane.contribution is not None
            name = lane.contribution.text
            [term] = [t for t in re.findall(r"[\w.]+", shape.identity) if t.rpartition(".")[2] == name][:1]
            assert term_role(term, record, mine) == lane.contribution.role, term
            assert f'r-{lane.contribution.role}">{term}<' in equation(shape.identity, record, mine)
            rows = [v for v in record.values if v.name == name and v.blocks and set(v.blocks) <= set(mine)]
            assert {row_role(v, record) for v in rows} <= {lane.contribution.role}


def test_what_is_no_value_has_no_colour_and_a_norms_output_has_the_norms(record: Record) -> None:
    assert term_role("softmax", record, None) == "plain"
    assert term_role("embed_tokens.weight[input_ids]", record, None) == "plain"
    assert term_role("layers[i].input", record, [0]) == "stream"
    if any(v.name == "attention_norm_output" and v.blocks for v in record.values):
        assert term_role("attention_norm_output", record, None) == "norm"


def test_the_same_name_is_of_the_mixture_on_some_blocks_and_of_the_mlp_on_others() -> None:
    record = read_record(ROOT / "site_src" / "records" / "deepseek_v3" / "tiny.json")
    kinds = {sub.kind for shape in record.shapes for sub in shape.sublayers}
    assert {"mlp", "moe"} <= kinds
    roles = {block: term_role("mlp.mlp_output", record, [block]) for block in range(len(record.blocks))}
    for block, role in roles.items():
        kind = record.shapes[record.blocks[block]].sublayers[-1].kind
        assert role == {"mlp": "mlp", "moe": "mixture"}[kind]


@pytest.mark.parametrize("order", [["layers", "H.blocks"], ["H.blocks", "layers"]])
def test_blocks_outside_the_list_stand_in_the_strip_where_a_forward_runs_them(order: list[str]) -> None:
    record = read_record(ROOT / "site_src" / "records" / "hrm_text" / "tiny.json")
    told = {"at": ["H.blocks.0", "H.blocks.1"], "order": order, "turns": 3}
    found = [e.model_copy(update={"measured": told}) if e.slug == "unlisted-blocks" else e for e in record.experiments]
    strip = re.sub(r"<[^>]+>|\s+", " ", model_strip(Standing(record.model_copy(update={"experiments": found}), None)))
    places = [strip.index(text) for text in (order[0], order[1], "norm ")]
    assert places == sorted(places)
    assert re.search(r"H\.blocks +× 2 +not in the list, 3 times in turns with layers", strip)


@pytest.mark.parametrize(("family", "said"), [("inkling2_text", "beside the stream: block_states"), ("llama", None)])
def test_a_state_that_blocks_hand_on_stands_in_the_strip(family: str, said: str | None) -> None:
    record = read_record(ROOT / "site_src" / "records" / family / "tiny.json")
    strip = model_strip(Standing(record, None))
    assert said in strip if said else "beside the stream" not in strip


def test_no_line_of_an_equation_ends_within_an_index(record: Record) -> None:
    between = next(i for i in record.identities if "[i-1]" in i.expression)
    assert '<span class="whole">[i-1]</span>' in equation(between.expression, record, between.blocks)
