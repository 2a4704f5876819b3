"""The built site: complete without JavaScript, honest about what ran, light, and free of the heavy side."""

from __future__ import annotations

import errno
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

from probe.errors import ProbeError
from probe.render import hooks
from probe.render import site as render_site
from probe.render.__main__ import main as render_main
from probe.render.text import anchor
from probe.schema import Record
from tests.render import fixture
from tests.render.conftest import ROOT, Site, render
from tests.render.fixture.printout import runs

BUDGET = 120 * 1024
DEFAULTS = {
    "gemma4_text": "google--gemma-4-E2B-it",
    "llama4_text": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "llama": "HuggingFaceTB--SmolLM2-135M-Instruct",
}
LIGHT = set(
    "__main__ _distutils_hack _markupsafe _yaml annotated_types babel backrefs bs4 certifi charset_normalizer click"
    " colorama dateutil ghp_import htmlparser idna jinja2 markdown markupsafe material mergedeep mkdocs"
    " mkdocs_get_deps packaging paginate pathspec platformdirs probe pydantic pydantic_core pygments pymdownx"
    " requests six soupsieve typing_extensions typing_inspection urllib3 watchdog yaml yaml_env_tag".split()
    + "PIL contourpy cycler fontTools kiwisolver matplotlib mpl_toolkits numpy pyparsing".split()
)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def uri(record: Record) -> str:
    slug = record.checkpoint.id.replace("/", "--")
    return f"{record.family}/" if DEFAULTS[record.family] == slug else f"{record.family}/{slug}/"


def pages() -> list[Record]:
    return fixture.records()


every_page = pytest.mark.parametrize("record", pages(), ids=lambda r: r.checkpoint.id)


def article(html: str) -> str:
    found = re.search(r'<article class="family-page".*?</article>', html, re.S)
    assert found
    return found[0]


def values_of(record: Record) -> list:
    return [*record.values, *(record.vision.values if record.vision else [])]


@every_page
def test_every_value_has_its_row(site: Site, record: Record) -> None:
    html = article(site.page(uri(record)))
    rows = {m[1]: m[0] for m in re.finditer(r'<tr id="([^"]+)".*?</tr>', html, re.S)}
    for value in values_of(record):
        row = rows[anchor(value.host, value.name)]
        assert f">{value.name}</code>" in row
        assert value.layout in row
        assert ("is-never" in row) == (value.blocks == [])
        if value.needs or value.reason:
            assert "⚠" in row and value.reason is not None
        if value.hf and value.hf.path:
            assert value.hf.path in row


@every_page
def test_block_0_is_drawn_without_javascript(site: Site, record: Record) -> None:
    html = article(site.page(uri(record)))
    first = re.search(r'<figure class="shape is-current".*?</figure>', html, re.S)
    assert first
    for value in record.values:
        if value.host.startswith("model.layers[i]") and 0 in (value.blocks or []):
            assert f'xlink:href="#{anchor(value.host, value.name)}"' in first[0]
    assert " hidden" not in first[0].partition(">")[0] and "inert" not in first[0].partition(">")[0]


@every_page
def test_links_within_the_page_lead_somewhere(site: Site, record: Record) -> None:
    html = site.page(uri(record))
    ids = Counter(re.findall(r'\sid="([^"]+)"', article(html)))
    assert [i for i, n in ids.items() if n > 1] == []
    targets = set(re.findall(r'href="#([vpq]-[^"]+|h-[^"]+)"', html))
    assert len(targets) > 20
    assert targets <= set(ids)
    for index, card in re.findall(r'href="#(?:vision-)?block-(\d+)\.([^"]+)"', html):
        assert card in ids and int(index) < 48


@every_page
def test_markup_is_balanced(site: Site, record: Record) -> None:
    """The theme's search reads the page with a parser that trusts every tag to be closed."""
    stack: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in VOID:
                stack.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None: ...

        def handle_endtag(self, tag: str) -> None:
            assert stack.pop() == tag, self.getpos()

    Balance().feed(article(site.page(uri(record))))
    assert stack == []


@every_page
def test_sections_stand_in_the_order_of_a_family_page(site: Site, record: Record) -> None:
    html = article(site.page(uri(record)))
    wanted = [
        "checkpoints",
        "block",
        *(["vision"] if record.vision else []),
        "values",
        "identities",
        "experiments",
        "facts",
        "printout",
        "config",
        *(["vision-config"] if record.vision else []),
        "module",
        "provenance",
    ]
    found = [i for i in re.findall(r'<h2[^>]* id="([^"]+)"', html) if i in wanted]
    assert found == wanted


@every_page
def test_what_was_only_built_never_reads_as_run(site: Site, record: Record) -> None:
    html = article(site.page(uri(record)))
    states = Counter(re.findall(r'<tr id="v-[^"]+" class="r-\w+ is-(\w+)"', html))
    if record.checkpoint.kind == "config":
        assert states["run"] == 0 and states["built"] > 20
        assert record.evidence and "Nothing ran on this checkpoint" in html
        assert f"twin {record.evidence.twin}" in html
        for sentence in re.findall(r"moved a logit by [^<]+", html):
            assert f"on {record.evidence.twin}" in sentence
    else:
        assert states["built"] == 0 and states["run"] > 20
        assert "Nothing ran" not in html


def test_a_built_checkpoint_without_a_twins_record_claims_nothing(site: Site) -> None:
    html = article(site.page("llama4_text/"))
    assert "not evaluated" in html and "None was evaluated" in html
    assert "moved a logit" not in html


def test_sizes_that_differ_between_blocks_are_all_given(site: Site) -> None:
    html = article(site.page("gemma4_text/"))
    row = re.search(r'<tr id="v-layers-self_attn-attention_queries".*?</tr>', html, re.S)
    assert row and "[batch, 8, seq, 256 or 512]" in row[0]


def test_a_folded_tensor_is_told_with_the_view_that_unfolds_it(site: Site) -> None:
    for uri, held in (("llama/", "held as"), ("gemma4_text/", "held as on tiny")):
        row = re.search(r'<tr id="v-layers-self_attn-attention_premix".*?</tr>', article(site.page(uri)), re.S)
        assert row and f"<dt>{held}</dt>" in row[0]
        told = "<code>[1, 9, 36]</code>; the value is <code>tensor.unflatten(2, (num_heads, head_dim))</code>"
        assert told in row[0].replace("<wbr>", "")
    row = re.search(r'<tr id="v-layers-self_attn-attention_output".*?</tr>', article(site.page("llama/")), re.S)
    assert row and "held as" not in row[0]


def test_the_selector_lists_missing_checkpoints_with_their_reason(site: Site) -> None:
    html = re.search(r'<nav class="selector".*?</nav>', site.page("gemma4_text/"), re.S)
    assert html
    entries = re.findall(r"<li.*?</li>", html[0], re.S)
    groups = re.findall(r'<div class="is-missing">.*?</div>', html[0], re.S)
    [missing] = [e for e in entries if "gemma-4-31B" in e]
    assert "<a " not in missing and [missing in g and "Gated on the Hub" in g for g in groups] == [True]
    [other] = [e for e in entries if "26B-A4B" in e]
    assert 'href="../gemma4_text/google--gemma-4-26B-A4B/"' in other
    assert len([e for e in entries if 'aria-current="page"' in e]) == 1
    kinds = [re.search(r'class="kind">([^<]+)', e) for e in entries]
    assert [k[1] for k in kinds if k] == ["built from config", "built from config", "tiny twin"]


@every_page
def test_the_raw_record_is_published_as_it_is(site: Site, record: Record) -> None:
    name = f"records/{record.family}/{record.checkpoint.id.replace('/', '--')}.json"
    assert (site.directory / name).read_bytes() == (site.records / name.removeprefix("records/")).read_bytes()
    up = "../" * uri(record).count("/")
    assert f'href="{up}{name}"' in site.page(uri(record))


@every_page
def test_a_page_weighs_at_most_its_budget(site: Site, record: Record) -> None:
    """The page and all it loads beyond the theme: our css, js and fonts; text as gzip leaves it."""
    html = (site.directory / uri(record) / "index.html").read_bytes()
    weight = len(gzip.compress(html))
    for path in (ROOT / "site_src" / "assets").rglob("*"):
        if path.suffix in (".css", ".js"):
            weight += len(gzip.compress(path.read_bytes()))
        elif path.suffix == ".woff2":
            weight += path.stat().st_size
    assert weight <= BUDGET, f"{weight / 1024:.1f} KB"


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    for path in [*site.directory.rglob("index.html"), *(site.directory / "assets").rglob("*.css")]:
        if path.parent.name == "stylesheets":
            continue
        loads = re.findall(
            r'(?:src=|<link[^>]*(?:stylesheet|preload|icon)[^>]*href=)"([^"]+)"|url\(([^)]+)\)', path.read_text()
        )
        assert not [found for pair in loads for found in pair if "//" in found]


def test_the_search_index_holds_values_paths_and_checkpoints_but_no_printouts(site: Site) -> None:
    docs = json.loads((site.directory / "search" / "search_index.json").read_text())["docs"]
    text = " ".join(d["title"] + " " + d["text"] for d in docs)
    for record in pages():
        assert record.checkpoint.id in text
    for needle in (
        "attention_probabilities",
        "model.language_model.layers.{i}.self_attn",
        "image_features",
        "Gated on the Hub",
    ):
        assert needle in text
    assert "ModuleList(" not in text and "in_features" not in text
    for record in pages():
        own = [d for d in docs if d["location"].startswith(uri(record)) and uri(record).count("/") == 2]
        if uri(record).count("/") == 2:
            assert len(own) == 1 and own[0]["text"] == "" and record.checkpoint.id in own[0]["title"]


def test_the_printout_is_whole_coloured_and_folded(site: Site) -> None:
    [record] = [r for r in pages() if r.checkpoint.id == "google/gemma-4-E2B-it"]
    html = re.search(r"<atlas-printout.*?</atlas-printout>", site.page("gemma4_text/"), re.S)
    assert html
    lines = re.sub(r"<[^>]+>", "", html[0].replace("</div>", "\n").replace("</summary>", "\n"))
    import html as entities

    shown = entities.unescape(lines).replace(" → ", " -> ").split("\n")
    assert [s.rstrip() for s in shown if s.strip()] == [s.rstrip() for s in record.printout.split("\n") if s.strip()]
    assert (
        '<b class="v">attention_keys</b>' in html[0]
        and '<b class="s">self_attn</b>' in html[0]
        and '<b class="n">q_proj</b>' in html[0]
    )
    assert html[0].count("<details>") == len(list(runs(record.blocks))) - 1 and "<details open>" in html[0]


def test_index_and_how_we_know(site: Site) -> None:
    html = site.page(".")
    for family in DEFAULTS:
        assert f'href="{family}/"' in html
    assert "What an identity is" in site.page("how-we-know")


def test_notes_are_rendered_under_their_own_headings(site: Site) -> None:
    html = site.page("gemma4_text/")
    notes = re.search(r'<section class="notes">.*?</section>', html, re.S)
    assert notes
    headings = re.findall(r'<(h\d)[^>]* id="([^"]+)"', notes[0])
    assert [name for _, name in headings] == [
        "notes", "n-the-block-in-order", "n-a-detail", "vision-notes", "nv-padded-rows"
    ]  # fmt: skip
    assert [level for level, _ in headings] == ["h2", "h3", "h4", "h2", "h3"]
    assert '<span class="o">*</span> scalar' in notes[0] and "<td>8</td>" in notes[0]
    assert 'href="#n-the-block-in-order" class="md-nav__link"' in html
    assert 'id="notes"' not in site.page("llama/")


def test_social_metadata(site: Site) -> None:
    html = site.page("llama")
    assert '<meta property="og:title" content="Llama · Transformer Atlas">' in html
    assert '<meta property="og:description" content="A pre-norm block with grouped queries' in html


def test_building_imports_only_the_light_side(site: Site, tmp_path: Path) -> None:
    """Everything imported while the whole site is built, by top-level package, against what may be."""
    program = (
        f"import os; os.environ['PROBE_NOTES'] = {str(tmp_path)!r}\n"
        "import sys, json\nfrom probe.render.__main__ import main\n"
        f"status = main(['build', '--records', {str(site.records)!r}, '--site', {str(tmp_path)!r}])\n"
        "roots = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(json.dumps([status, sorted(roots)]))\n"
        "print(json.dumps(sorted(m for m in sys.modules if m.startswith(('probe', 'families')))))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    (status, found), ours = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert status == 0
    own = ("_virtualenv", "__editable__", "_sysconfigdata", "probe/", "cython_runtime", "_cython")
    assert {m for m in found if not m.startswith(own)} - LIGHT == set()
    heavy = tuple(
        f"probe.{name}"
        for name in "checkpoints derive experiments instruments measure record standard values wiring".split()
    )
    assert [m for m in ours if m.startswith((*heavy, "families"))] == []


def test_a_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    done = render("build", "--records", str(tmp_path / "none"), "--site", str(tmp_path / "site"))
    assert done.returncode == 2 and "There are no records at" in done.stderr and "Traceback" not in done.stderr


def test_a_folder_of_anything_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    for site, said in (("letters", "holds something that is no built site"), ("letters/dear.txt", "is no folder")):
        done = render("build", "--records", str(tmp_path / "records"), "--site", str(tmp_path / site))
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "letters" / "dear.txt").read_text() == "dear"


@pytest.mark.parametrize(
    "fault", [None, KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device", "of", None, "copy")]
)
def test_a_site_stays_until_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException | None
) -> None:
    def build(config: MkDocsConfig) -> None:
        (Path(config.site_dir) / "new").mkdir()
        (Path(config.site_dir) / "new" / "index.html").touch()
        if fault:
            raise fault

    monkeypatch.setattr("mkdocs.commands.build.build", build)
    (tmp_path / "old").mkdir()
    (tmp_path / "sitemap.xml").touch()
    if fault:
        with pytest.raises((KeyboardInterrupt, ProbeError)) as caught:
            render_site.build(site=tmp_path)
        assert isinstance(fault, KeyboardInterrupt) or "No space left on device: copy" in str(caught.value)
        assert {path.name for path in tmp_path.iterdir()} == {"old", "sitemap.xml"}
    else:
        assert render_site.build(site=tmp_path).pages == 1
        assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_a_build_that_was_killed_or_stopped_stands_in_no_ones_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops(config: MkDocsConfig) -> None:
        raise faults.pop()

    faults: list[BaseException] = [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), KeyboardInterrupt()]
    (tmp_path / ".building-killed").mkdir()
    monkeypatch.setattr("mkdocs.commands.build.build", stops)
    assert render_main(["build", "--site", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "Stopped. What was built before is as it was.\n"
    for _ in range(2):
        assert render_main(["build", "--site", str(tmp_path)]) == 1
        assert capsys.readouterr().err.startswith("The memory ran out: free some, ")


def test_one_build_at_a_time_writes_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def builds(config: MkDocsConfig) -> None:
        with pytest.raises(ProbeError, match="Another build writes"):
            render_site.build(site=tmp_path)
        (Path(config.site_dir) / "index.html").touch()

    monkeypatch.setattr("mkdocs.commands.build.build", builds)
    assert render_site.build(site=tmp_path).pages == 1
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


@pytest.mark.parametrize(
    "note, said", [(b"{{ fact none }}", "fact none"), (b"\xff\xfe", "llama.md is no text in UTF-8")]
)
def test_a_broken_note_is_told_once(tmp_path: Path, note: bytes, said: str) -> None:
    fixture.write(tmp_path / "records")
    (tmp_path / "llama.md").write_bytes(note)
    done = render(
        "build", "--records", str(tmp_path / "records"), "--site", str(tmp_path / "site"), PROBE_NOTES=str(tmp_path)
    )
    assert done.returncode == 2 and done.stderr.count(said) == 1 and "Traceback" not in done.stderr


def test_kernels_that_cannot_be_read_are_refused_before_any_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> None:
        raise ProbeError("restore it")

    monkeypatch.setenv("PROBE_RECORDS", str(site.records))
    monkeypatch.setattr("probe.kernels.results.committed", refuses)
    with pytest.raises(PluginError, match="restore it"):
        hooks.on_config(MkDocsConfig())


def test_a_broken_record_is_a_clear_error(tmp_path: Path) -> None:
    fixture.write(tmp_path / "records")
    broken = tmp_path / "records" / "llama" / "HuggingFaceTB--SmolLM2-135M-Instruct.json"
    broken.write_text(broken.read_text()[:2000])
    done = render(
        "build", "--records", str(tmp_path / "records"), "--site", str(tmp_path / "site"), PROBE_NOTES=str(tmp_path)
    )
    assert done.returncode == 2 and broken.name in done.stderr and "Traceback" not in done.stderr


def test_serving_what_is_not_built_is_a_clear_error(tmp_path: Path) -> None:
    done = render("serve", "--no-build", "--site", str(tmp_path))
    assert done.returncode == 2 and "build it first" in done.stderr


def test_no_record_at_all_still_builds(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    done = render(
        "build", "--records", str(tmp_path / "records"), "--site", str(tmp_path / "site"), PROBE_NOTES=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "No family has a record yet" in (tmp_path / "site" / "index.html").read_text()
