"""The diagram's geometry, on every shape of the fixture, wide and narrow, and on a parallel block."""

from __future__ import annotations

import itertools
import re
from functools import partial
from xml.etree import ElementTree

import pytest

from probe.render.diagram.block import draw
from probe.render.diagram.mixer import wiring
from probe.render.diagram.model import Reader
from probe.render.know.subject import Subject
from probe.render.other_names import by_tool
from probe.render.standing import Standing
from probe.render.text import row_id
from probe.schema import Feeder, Record, Shape, Value
from probe.store import read_record
from tests.render import fixture
from tests.render.conftest import ROOT

LINK = "{http://www.w3.org/1999/xlink}href"
Case = tuple[Shape, int, list[int], list[Value], str]


def cases() -> list[Case]:
    found: list[Case] = []
    for record in [*fixture.records(), Record.model_validate(fixture.llama("parallel"))]:
        for part, prefix in ((record, "model."), (record.vision, "model.vision.")):
            if part is None:
                continue
            for index, shape in enumerate(part.shapes):
                mine = [i for i, s in enumerate(part.blocks) if s == index]
                found.append((shape, index, mine, part.values, prefix))
    return found


def drawn(case: Case, narrow: bool) -> ElementTree.Element:
    shape, index, mine, values, prefix = case
    return parsed(str(draw(Reader(shape, index, mine, values, prefix, "text").read(), narrow, shape.label, "stream")))


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))


def check_labels(svg: ElementTree.Element, whose: str = "") -> None:
    """No two labels overlap, and all are inside."""
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    found = rectangles(svg)
    for card, left, top, right, bottom in found:
        assert left >= 0 and top >= 0 and right <= width and bottom <= height, (whose, card)
    for (a, l1, t1, r1, b1), (b, l2, t2, r2, b2) in itertools.combinations(found, 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1, (whose, a, b)


def rectangles(svg: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """Every chip and norm as (card, left, top, right, bottom)."""
    out = []
    for link in svg.iter("a"):
        if re.search(r"\b(chip|norm)\b", link.get("class", "")) and (rect := link.find("rect")) is not None:
            x, y, w, h = (float(rect.get(k, "nan")) for k in ("x", "y", "width", "height"))
            out.append((link.get(LINK, ""), x, y, x + w, y + h))
    return out


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_a_mixers_recurrence_stands_in_a_panel_between_its_convolution_and_its_result(narrow: bool) -> None:
    record = read_record(ROOT / "site_src" / "records" / "mamba2" / "tiny.json")
    svg = drawn((record.shapes[0], 0, [0], record.values, "model."), narrow)
    [panel] = [g for g in svg.iter("g") if "panel" in g.get("class", "")]
    assert [text.text for text in panel.iter("text")] == ["recurrence"]
    edge = panel.find("rect")
    assert edge is not None
    top, height = float(edge.get("y", "nan")), float(edge.get("height", "nan"))
    tops = {card.rpartition("-")[2]: y for card, _, y, _, _ in rectangles(svg) if "linear_attn" in card}
    inside = {name for name, y in tops.items() if top < y < top + height}
    assert inside == {"mixer_x", "mixer_b", "mixer_c", "mixer_dt", "mixer_step_size", "mixer_decay", "state_in"}
    assert tops["conv_output"] < top and tops["recurrence_output"] > top + height < tops["state_out"]
    assert tops["attention_premix"] > tops["recurrence_output"]


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_what_feeds_one_sublayer_is_drawn_in_front_of_it_and_joins_beside_the_stream(narrow: bool) -> None:
    record = read_record(ROOT / "site_src" / "records" / "zamba2" / "tiny.json")
    index = next(k for k, shape in enumerate(record.shapes) if shape.layer_type == "hybrid")
    mine = [k for k, s in enumerate(record.blocks) if s == index]
    fed = [Feeder(path="shared_transformer", module="Shared"), Feeder(path="linear", module="Linear")]
    [mixer] = record.shapes[index].sublayers
    shape, alone = (
        record.shapes[index].model_copy(update={"sublayers": [mixer.model_copy(update={"fed_by": by})]})
        for by in (fed, [])
    )
    svg = drawn((shape, index, mine, record.values, "model."), narrow)
    check_labels(svg)
    tops = {card.removeprefix("#v-layers-"): y for card, _, y, _, _ in rectangles(svg)}
    mixed = [y for name, y in tops.items() if "linear_attn" in name]
    served = [name for name in tops if name.startswith("shared_transformer-self_attn-attention_")]
    joins, leaves = sorted(_nodes(svg), key=lambda node: node[2])
    assert len(served) == 7 and max(tops[name] for name in served) < joins[2] < min(mixed)
    assert joins[1] > leaves[1], "the stream's own add stands on the stream, the other beside it"
    assert len(rectangles(drawn((alone, index, mine, record.values, "model."), narrow))) == len(tops) - 8


def test_a_mixer_whose_values_do_not_tell_its_wiring_has_chips_without_lines() -> None:
    assert wiring(["conv_input", "mixer_gate"]) is None
    assert wiring(["conv_input", "conv_output", "attention_premix"]) is not None


def test_no_label_of_any_committed_block_is_left_out_or_leaves_its_drawing_or_covers_another() -> None:
    """With every tool's names, which make chips wider. Hosts that are no sublayer of the block's sum are not drawn."""
    seen = set()
    for path in sorted((ROOT / "site_src" / "records").glob("*/*.json")):
        record = read_record(path)
        others = partial(by_tool, Subject(Standing(record, None)))
        for index, shape in enumerate(record.shapes):
            mine = [i for i, s in enumerate(record.blocks) if s == index]
            block = Reader(shape, index, mine, record.values, "model.", "text", others).read() if mine else None
            for narrow in (False, True) if block else ():
                svg = str(draw(block, narrow, shape.label, "stream"))
                if svg not in seen:
                    seen.add(svg)
                    check_labels(parsed(svg), f"{path.parent.name} {shape.label}")
                    hosts = tuple(f"model.layers[i].{sub.host}" for sub in shape.sublayers if sub.host)
                    inside = [v for v in record.values if v.host.startswith(hosts) and {*(v.blocks or [])} & {*mine}]
                    assert all(f"#{row_id(v, record.values)}" in svg for v in inside), path.parent.name
    assert len(seen) > 200


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("name", "on_stream"),
    [
        ("llama", ["layer_input", "add", "layer_mid", "add", "layer_output"]),
        ("openai-gpt", ["layer_input", "add", "ln_1", "layer_mid", "add", "ln_2", "layer_output"]),
        ("rwkv", ["layer_input", "pre_ln", "add", "layer_mid", "add", "layer_output"]),
        (
            "minimax",
            ["layer_input", "input_layernorm", "attn_alpha_factor", "add", "layer_mid", "post_attention_layernorm"]
            + ["mlp_alpha_factor", "add", "layer_output"],
        ),
    ],
)
def test_norms_and_factors_of_the_stream_itself_stand_on_it_in_the_order_of_the_sum(
    name: str, on_stream: list[str], narrow: bool
) -> None:
    record = read_record(ROOT / "site_src" / "records" / name / "tiny.json")
    svg = drawn((record.shapes[0], 0, [0], record.values, "model."), narrow)
    [stream] = {x for said, x, _, _ in _nodes(svg) if said == "add, add"}
    found = [(y, said) for said, x, y, _ in _nodes(svg) if x == stream]
    for link in svg.iter("a"):
        if "box" not in link.get("class", "") and (rect := link.find("rect")) is not None:
            left, top, width = (float(rect.get(key, "nan")) for key in ("x", "y", "width"))
            if left < stream < left + width:
                found.append((top, link.get("aria-label", "")))
    assert [said.partition(",")[0] for _, said in sorted(found)] == on_stream


def _nodes(svg: ElementTree.Element) -> list[tuple[str, float, float, float]]:
    """Every ⊕ and ⊗ as (what it is, centre, radius)."""
    out = []
    for link in svg.iter("a"):
        if re.search(r"\b(add|times)\b", link.get("class", "")) and (group := link.find("g")) is not None:
            x, y = map(float, re.findall(r"-?[\d.]+", group.get("transform", "")))
            ring = [circle for circle in group.iter("circle") if circle.get("class") != "target"]
            out.append((link.get("aria-label", ""), x, y, float(ring[0].get("r", "nan"))))
    return out


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize(("name", "count"), [("granite", 4), ("falcon_h1", 4), ("llama", 2)])
def test_an_add_and_what_multiplies_before_it_touch_neither_each_other_nor_a_label(
    name: str, count: int, narrow: bool
) -> None:
    record = read_record(ROOT / "site_src" / "records" / name / "tiny.json")
    svg = drawn((record.shapes[0], 0, [0], record.values, "model."), narrow)
    nodes = _nodes(svg)
    assert len(nodes) == count
    for (a, x1, y1, r1), (b, x2, y2, r2) in itertools.combinations(nodes, 2):
        assert (x1 - x2) ** 2 + (y1 - y2) ** 2 > (r1 + r2) ** 2, (a, b)
    for node, x, y, r in nodes:
        for card, left, top, right, bottom in rectangles(svg):
            near = (min(max(x, left), right), min(max(y, top), bottom))
            assert (x - near[0]) ** 2 + (y - near[1]) ** 2 > r**2, (node, card)


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c[0].module}-{c[0].label}")
class TestDrawing:
    def test_no_two_labels_overlap_and_all_are_inside(self, case: Case, narrow: bool) -> None:
        check_labels(drawn(case, narrow))

    def test_every_value_of_the_block_is_drawn_once(self, case: Case, narrow: bool) -> None:
        shape, _, mine, values, prefix = case
        host = f"{prefix}layers[i]"
        here = [v for v in values if v.host.startswith(host) and set(v.blocks or []) & set(mine)]
        cards = [link.get(LINK, "") for link in drawn(case, narrow).iter("a")]
        for value in here:
            ends = f"-{value.name}"
            assert sum(c.endswith(ends) and c.startswith("#v-") for c in cards) == 1, value.name

    def test_norms_boxes_adds_and_factors_are_parts(self, case: Case, narrow: bool) -> None:
        shape = case[0]
        classes = [link.get("class", "").split()[1] for link in drawn(case, narrow).iter("a")]
        joined = sum(s.parallel_with_next for s in shape.sublayers)
        norms = sum((s.pre_norm is not None) + (s.post_norm is not None) for s in shape.sublayers)
        assert classes.count("box") == len(shape.sublayers)
        assert classes.count("add") == len(shape.sublayers) - joined
        assert classes.count("norm") == norms + len(shape.factors)
        assert classes.count("times") == len(shape.factors)
