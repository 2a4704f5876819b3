"""The pages over all families, and the data beside them, on a site of forty families."""

from __future__ import annotations

import html
import json
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from probe.index import Index
from probe.render import by_quirk, by_value, catalog
from probe.render.facets import MIXERS, facets, held
from probe.render.home import card, ticks
from probe.render.methods import methods
from probe.render.navigation import GROUP, groups
from probe.render.places import by_name, is_served, rows
from probe.render.text import figure, words
from probe.schema import Record, Value
from tests.render import fixture, many
from tests.render.conftest import ROOT, Site, render
from tests.render.fixture.rows import EAGER_REASON

COUNT = 40


@dataclass(frozen=True)
class Wide(Site):
    """A site, and the seconds of processor time that building it took."""

    seconds: float


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Wide:
    """The fixture's families and forty more."""
    records = fixture.write(many.write(tmp_path_factory.mktemp("records"), COUNT))
    (records / "schema.json").write_text("{}")
    directory, notes = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("notes")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = render("build", "--records", str(records), "--site", str(directory), PROBE_NOTES=str(notes))
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Wide(records, directory, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@cache
def families(records: Path) -> dict[str, catalog.Family]:
    return catalog.read(records)


def values(records: Path) -> Iterator[tuple[catalog.Family, Record, Value]]:
    for family in families(records).values():
        for stored in family.pages:
            yield from ((family, stored.record, value) for value, _ in rows(stored.record))


def text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup.replace("<wbr>", ""))).split())


def test_a_page_is_built_in_a_ninth_of_a_second(wide: Wide) -> None:
    """So that 150 families with three checkpoints each and their overviews take less than a minute."""
    assert wide.seconds / len(list(wide.directory.rglob("index.html"))) < 60 / 560


def test_every_link_of_every_page_leads_somewhere(wide: Site) -> None:
    """Pages, files and anchors, over the whole site."""
    anchors: dict[Path, set[str]] = {}
    pages = sorted(wide.directory.rglob("*.html"))
    for path in pages:
        anchors[path] = set(re.findall(r'\sid="?([^"\s>]+)"?', path.read_text()))
    broken = []
    for path in pages:
        if path.name == "404.html":
            continue
        for link in set(re.findall(r'<a [^>]*?href="([^"]+)"', path.read_text())):
            target, _, anchor = html.unescape(link).partition("#")
            target = target.partition("?")[0]
            if "//" in target:
                continue
            file = (path.parent / unquote(target)).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            deep = re.match(r"(vision-)?block-\d+", anchor)
            if not file.is_file() or (anchor and not deep and file in anchors and anchor not in anchors[file]):
                broken.append((path.relative_to(wide.directory), link))
    assert len(pages) > 200 and broken == []


def test_the_index_has_a_card_a_family_with_its_facets(wide: Site) -> None:
    page = wide.page(".")
    cards = {m[1]: m[0] for m in re.finditer(r'<li data-family="(\w+)".*?</li>', page, re.S)}
    assert set(cards) == set(families(wide.records))
    for name, family in families(wide.records).items():
        given = dict(re.findall(r' data-([\w-]+)="([^"]*)"', cards[name].partition(">")[0]))
        records = [stored.record for stored in family.stored.values()]
        quirks = {e.slug for r in records for e in r.experiments if e.verdict == "yes"}
        quirks |= {e.slug for r in records if r.vision for e in r.vision.experiments if e.verdict == "yes"}
        assert set(given["quirk"].split()) == quirks
        owners = {entry.id.split("/")[0] for r in records for entry in r.about.checkpoints if "/" in entry.id}
        assert set(given["organisation"].split()) == owners
        assert given["vision"] == ("yes" if any(r.vision for r in records) else "no")
        kinds = {sub.kind for r in records for shape in r.shapes for sub in shape.sublayers}
        assert ("moe" in given["feed"].split()) == ("moe" in kinds)
        assert set(given["available"].split()) == {r.checkpoint.kind for r in records}
        assert f'href="{name}/"' in cards[name] and " hidden" not in cards[name].partition(">")[0]


def test_filters_count_what_the_cards_have(wide: Site) -> None:
    page = wide.page(".")
    cards = [m[0] for m in re.finditer(r"<li data-family=[^>]+>", page)]
    groups_found = re.findall(r'<fieldset data-facet="([\w-]+)".*?</fieldset>', page, re.S)
    assert {"quirk", "organisation", "size", "vision", "available", "feed", "topology"} >= set(groups_found)
    for group in re.finditer(r'<fieldset data-facet="([\w-]+)".*?</fieldset>', page, re.S):
        options = re.findall(r'value="([^"]+)"><span>[^<]*</span>\s*<small>(\d+)</small>', group[0])
        assert len(options) > 1
        for key, count in options:
            held_by = [c for c in cards if key in re.search(rf' data-{group[1]}="([^"]*)"|$', c).expand(r"\1").split()]
            assert len(held_by) == int(count), (group[1], key)


def test_a_twins_size_is_told_as_the_twins_and_never_sorts_as_a_published_one() -> None:
    whole = catalog.read_family(ROOT / "site_src" / "records" / "llama")
    assert whole and whole.default.record.checkpoint.kind != "tiny"
    alone = catalog.Family("llama", {"tiny": whole.stored["tiny"]})
    published, twin = card(whole, facets(whole)), card(alone, facets(alone))
    assert ("blocks", published.order["blocks"]) in published.figures
    assert "blocks" not in dict(twin.figures) and "parameters" not in dict(twin.figures)
    assert dict(twin.figures)["blocks in its tiny twin"] == str(twin.blocks)
    assert (twin.order["blocks"], twin.order["parameters"], twin.facets["size"]) == ("0", "0", "")


def test_a_mixer_inside_a_wrapper_is_filtered_with_the_others_of_its_name() -> None:
    bare, wrapped = (catalog.read_family(ROOT / "site_src" / "records" / name) for name in ("mamba2", "zamba2"))
    assert bare and wrapped
    assert len(facets(bare).mixers) == 1 and set(facets(bare).mixers) <= set(facets(wrapped).mixers)


def test_every_mixer_that_families_are_filtered_by_has_a_word() -> None:
    every = families(ROOT / "site_src" / "records").values()
    found = {mixer for family in every for mixer in facets(family).mixers}
    assert {"attention", "scan", "convolution-mixers", "fixed-decay"} <= found <= {"attention", *MIXERS}


def test_ticks_are_the_blocks_by_layer_type() -> None:
    assert ticks(["a", "a", "b", "a"]) == [("0", "M0 .5H2M3 .5H4"), ("1", "M2 .5H3")]
    assert {tone for tone, _ in ticks([str(i) for i in range(9)])} == set("012345")


@pytest.mark.parametrize("about", ["text", "vision"])
def test_a_value_has_a_page_that_lists_every_family_serving_it(wide: Site, about: str) -> None:
    served: dict[str, dict[str, Value]] = {}
    for family, _, value in values(wide.records):
        if is_served(value) and value.host.startswith("model.vision") == (about == "vision"):
            served.setdefault(value.name, {}).setdefault(family.name, value)
    assert len(served) > 10
    for name, by_family in served.items():
        page = re.sub('<wbr>|<span class="whole">([^<]*)</span>', r"\1", wide.page(f"values/{name}"))
        rows_of = {m[1]: m[0] for m in re.finditer(r'<tr id="f-(\w+)-[^"]+">.*?</tr>', page, re.S)}
        tables = {m[1]: m[0] for m in re.finditer(r'<tr id="(f-\w+-[^"]+)">.*?</tr>', page, re.S)}
        assert set(by_family) <= set(rows_of)
        for family, value in by_family.items():
            mine = " ".join(row for key, row in tables.items() if key.startswith(f"f-{family}-"))
            if value.hf and value.hf.path:
                assert value.hf.path in mine
            if value.needs:
                assert "eager load" in mine


def test_what_a_value_is_stands_before_its_other_names(wide: Site) -> None:
    page = wide.page("values/attention_queries")
    assert page.index('class="lede"') < page.index('id="other-names"') < page.index("Declared, not run here")
    one, both = (
        re.sub("<[^>]+>", "", re.search(r'<p class="note">Declared.*?</p>', wide.page(f"values/{name}"), re.S)[0])
        for name in ("attention_queries", "layer_output")
    )
    assert re.search(r"the source of TransformerLens \S+ \(\w+\)\. .+ nor in hook_out\.\s*$", one)
    assert re.search(r"the source of TransformerLens \S+ \(\w+\) and nnterp \S+ \(\w+\)\. ", both)


def test_the_odd_ones_are_pointed_out(wide: Site) -> None:
    page = text(re.search(r'<dl class="odd">.*?</dl>', wide.page("values/attention_probabilities"), re.S)[0])
    total = len(families(wide.records))
    assert f"needs an eager load {total} of {total}" in page and EAGER_REASON in page
    weights = wide.page("values/expert_weights")
    odd = text(re.search(r'<dl class="odd">.*?</dl>', weights, re.S)[0])
    assert "not served" in odd and "no such factor" in odd and "Llama 4" in odd
    absent = {f.name for f, _, v in values(wide.records) if v.name == "expert_weights"} - {
        f.name for f, _, v in values(wide.records) if v.name == "expert_weights" and is_served(v)
    }
    counts = [int(n) for n in re.findall(r"not served (\d+)", odd)]
    assert sum(counts) == len(absent) > 5 and len(counts) > 1, "one line a reason"
    premix = text(wide.page("values/attention_premix"))
    ran = {f.name for f, r, v in values(wide.records) if v.name == "attention_premix" and v.hf and v.hf.held}
    assert f"held in another shape {len(ran)} of {total}" in premix
    assert "viewed as tensor.unflatten(2, (num_heads, head_dim))" in premix
    read_only = text(wide.page("values/input_ids"))
    assert "read-only" in read_only and "read-only" not in text(wide.page("values/mlp_neurons"))


def test_values_by_host(wide: Site) -> None:
    page = wide.page("values")
    hosts = {value.host for _, _, value in values(wide.records) if is_served(value)}
    assert {text(m) for m in re.findall(r'<h2 id="h-[^"]*">(.*?)</h2>', page)} == hosts
    row = re.search(r'<tr class="r-mixture">\s*<th scope="row"><a href="router_logits/">.*?</tr>', page, re.S)
    having = {f.name for f, _, v in values(wide.records) if v.name == "router_logits" and is_served(v)}
    assert row and f"{len(having)} of {len(families(wide.records))}" in text(row[0])


def test_what_no_family_serves_is_listed_with_its_reason() -> None:
    [scout] = [r for r in fixture.records() if "Scout" in r.checkpoint.id]
    alone = catalog.Family(scout.family, {"scout": catalog.Stored(Path("scout.json"), scout)})
    found = by_value.index(by_name([alone]), 1)
    listed = dict(found.unserved)
    assert "expert_weights" in listed and all(reasons and all(reasons) for reasons in listed.values())
    assert not listed.keys() & {entry.name for host in found.hosts for entry in host.entries}


def test_a_quirk_has_a_page_with_its_method_and_numbers(wide: Site) -> None:
    page = wide.page("quirks/alibi")
    assert text(methods()["alibi", "text"].doc)[:60] in text(page)
    assert '<span class="nf">alibi</span>' in page, "the experiment's code"
    having = {f.name for f in families(wide.records).values() if "alibi" in facets(f).quirks}
    table = re.search(r'<table class="wide-table".*?</table>', page, re.S)
    assert table and 'href="../../?quirk=alibi"' in page
    linked = {m.partition("/")[0] for m in re.findall(r'<th scope="row"><a href="\.\./\.\./([^"]+)"', table[0])}
    assert linked == having and len(having) > 5
    for row in re.findall(r"<tr>\s*<th scope=.row.*?</tr>", table[0], re.S):
        assert re.search(r'<td class="number" data-label="largest change">[\d.]+</td>', row)


@pytest.fixture(scope="module")
def committed() -> by_quirk.Findings:
    return by_quirk.findings(families(ROOT / "site_src" / "records").values())


def test_a_row_of_what_was_only_built_has_the_words_and_numbers_of_its_own_card(committed: by_quirk.Findings) -> None:
    """And no size of the twin that ran: the embeddings of Gemma 2B are scaled by another factor than its twin's."""
    left_out = 0
    for (slug, about), found in committed.items():
        cards = {f.stored.record.checkpoint.id: f for f in found if f.experiment.verdict == "yes"}
        parts = by_quirk.page(slug, slug, {(slug, about): found}, 1).parts
        rows_of = [(part.columns, row) for part in parts for row in part.rows]
        assert {f.experiment.statement for f in cards.values()} <= {row.statement for _, row in rows_of}
        assert sorted(link.text for _, row in rows_of for link in row.checkpoints) == sorted(
            f.stored.record.checkpoint.id for f in found if f.experiment.verdict == "yes"
        )
        for columns, row in rows_of:
            finding = cards.get(row.checkpoints[0].text)
            if finding is None or finding.stored.record.checkpoint.kind != "config":
                continue
            own = {words(key): figure(value) for key, value in finding.experiment.measured.items()}
            shown = {column: cell for column, cell in zip(columns, row.cells, strict=True) if cell}
            assert shown.items() <= own.items(), (slug, row.checkpoints[0].text)
            left_out += len(shown) < len(columns)
    assert left_out > 50


def test_all_of_a_few_families_are_drawn_though_they_look_alike(committed: by_quirk.Findings) -> None:
    mine = committed["alibi", "text"]
    having = {f.family.name for f in mine if f.picture}
    [part] = by_quirk.page("alibi", "ALiBi", {("alibi", "text"): mine}, 1).parts
    assert len(part.drawings) == len(having) == 3
    rotary = committed["partial-rotary", "text"]
    [part] = by_quirk.page("partial-rotary", "", {("partial-rotary", "text"): rotary}, 1).parts
    assert len(part.drawings) == by_quirk.DRAWINGS, "of many, a few"


def test_an_undecided_quirk_says_why(wide: Site) -> None:
    page = text(wide.page("quirks/fp32-residual"))
    assert "Undecided" in page and "The twin was not loaded in half precision." in page


def test_every_quirk_of_the_committed_records_says_how_it_is_measured() -> None:
    found = set()
    for path in (ROOT / "site_src" / "records").glob("*/*.json"):
        data = json.loads(path.read_text())
        found |= {(e["slug"], "text") for e in data["experiments"]}
        found |= {(e["slug"], "vision") for e in (data["vision"] or {}).get("experiments", [])}
    assert len(found) > 50 and found <= set(methods())
    for method in methods().values():
        assert len(method.doc) > 20 and method.code.startswith(f"def {method.function}(") and '"""' not in method.code


def test_the_index_is_valid_and_whole(wide: Site) -> None:
    index = Index.model_validate_json((wide.directory / "index.json").read_text())
    schema = json.loads((wide.directory / "index.schema.json").read_text())
    assert schema == Index.model_json_schema(by_alias=True)
    assert [entry.family for entry in index.families] == list(families(wide.records))
    for entry in index.families:
        family = families(wide.records)[entry.family]
        assert {c.id for c in entry.checkpoints} == {s.record.checkpoint.id for s in family.stored.values()}
        for checkpoint in entry.checkpoints:
            record = Record.model_validate_json((wide.directory / checkpoint.record).read_text())
            assert record.checkpoint.id == checkpoint.id and (wide.directory / checkpoint.url / "index.html").is_file()
            assert checkpoint.quirks == [e.slug for e in held(record)]
        served = {
            (v.host, v.name, v.hf.path if v.hf else None)
            for s in family.stored.values()
            for v, _ in rows(s.record)
            if is_served(v)
        }
        assert {(v.host, v.name, v.path) for v in entry.values} == served
        for value in entry.values[::7]:
            page, _, anchor = value.url.partition("#")
            assert f'<tr id="{anchor}"' in wide.page(page)
        assert any(path.endswith("self_attn.q_proj") for path in entry.modules)
        called = {row.path for s in family.stored.values() for row in s.record.returned if row.path}
        assert {module.path for module in entry.called} == called
        for module in entry.called[:1]:
            assert 'id="l-returns"' in wide.page(module.url.partition("#")[0])
        seen = {
            row.path for s in family.stored.values() for row in (s.record.images.stations if s.record.images else [])
        }
        assert {module.path for module in entry.images} == seen
        assert all('id="l-images"' in wide.page(module.url.partition("#")[0]) for module in entry.images[:1])
    for topic in [*index.values, *index.quirks]:
        assert (wide.directory / topic.url / "index.html").is_file()


def test_llms_txt_links_to_what_is_there(wide: Site) -> None:
    found = (wide.directory / "llms.txt").read_text()
    links = re.findall(r"\]\(http://127\.0\.0\.1:8000/([^)]*)\)", found)
    assert found.startswith("# ") and len(links) > 100
    missing = [link for link in links if not (wide.directory / link).exists()]
    assert missing == []
    for name in families(wide.records):
        assert f"`{name}`" in found


def test_families_are_grouped_by_letters_once_they_are_many() -> None:
    few = [(f"{letter}x", letter) for letter in "abc"]
    assert groups(few) == [{"ax": "a/index.md"}, {"bx": "b/index.md"}, {"cx": "c/index.md"}]
    made = sorted((f"{letter}{k:02}", f"{letter}{k}") for letter in "ABCDEFG" for k in range(9))
    found = groups(made)
    assert [list(section)[0] for section in found] == ["A–B", "C–D", "E–F", "G"]
    assert sum(len(entries) for section in found for entries in section.values()) == 63
    assert all(len(list(section.values())[0]) >= GROUP for section in found[:-1])


def test_a_page_names_the_families_of_its_own_letters_only(wide: Site) -> None:
    """All of them on every page would make the site large and the list useless."""
    page = wide.page("alalmind")
    nav = re.search(r'<nav class="md-nav md-nav--primary.*?</nav>\s*</div>', page, re.S)
    assert nav and "Alfalnet" in nav[0] and "Phaphamind" not in nav[0] and len(nav[0]) < 40_000
