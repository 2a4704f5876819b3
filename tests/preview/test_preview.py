"""A change of a family's module leads to a preview that names the facts it moves, with pictures; a comment to none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probe.preview import build
from probe.preview.pages import ChangedPage, changed
from tests.preview.conftest import Repository
from tests.render import fixture

PREVIEW = Path("build") / "preview"
JPEG = b"\xff\xd8\xff"


def _facts(repository: Repository) -> dict[str, list[str]]:
    """The report's headings, and what is told under each."""
    parts = re.split(r"^### ", (repository.folder / PREVIEW / "change.md").read_text(), flags=re.M)[1:]
    return {part.split("\n")[0]: re.findall(r"^- (.*)$", part, re.M) for part in parts}


def test_a_changed_module_is_shown_by_its_facts_and_by_both_pictures(repository: Repository) -> None:
    repository.edit('"rope": {"original_max_position_embeddings": 32}', '"rope": {"factor": 4.0}')
    done = repository.run("scripts/preview", "main")
    page = repository.folder / PREVIEW / "site" / "change" / "index.html"
    assert done.stdout.splitlines() == ["1 family changed; 0 without a change of fact.", str(page)]
    facts = _facts(repository)
    drawn = facts.pop("Pictures")
    assert all(told.startswith("the picture “") for told in drawn)
    assert any("How fast each pair of a head’s dimensions turns" in told for told in drawn)
    assert facts == {
        "Sizes and config": [
            "`rope_parameters.factor`: `8` → `4` (`tiny`)",
            "`rope_parameters.original_max_position_embeddings`: `32` → `8192` (`tiny`)",
        ],
        "Quirks": ["Rescaled rotary measured `slowed_at_most`: `8` → `4` (`tiny`)"],
        "Facts": ["Wavelengths that are scaled: `8` → `4` (`tiny`)"],
    }
    text = page.read_text()
    assert "<code>slowed_at_most</code>: <code>8</code> → <code>4</code>" in text
    assert "<code>python -m probe llama</code> makes its records again" in text
    assert re.findall(r'<li><a href="\.\./([^"]*)">', text)[0] == "llama/"
    pictures = {name: (page.parent / name / "llama.jpg").read_bytes() for name in ("before", "after")}
    assert all(picture.startswith(JPEG) and len(picture) > 20_000 for picture in pictures.values())
    assert pictures["before"] != pictures["after"]
    for target in re.findall(r'(?:href|src)="((?:\.\./|before|after)[^"#]*)"', text):
        assert (page.parent / target).exists(), target
    assert repository.git("status", "--porcelain") == " M families/llama.py\n"


def test_a_change_of_comments_names_no_fact_and_no_page(repository: Repository) -> None:
    repository.edit("TITLE = ", "# What the page is called.\nTITLE = ")
    done = repository.run("scripts/preview", "main")
    assert done.stdout.startswith("No fact changed in 1 family.\n") and "llama · tiny" in done.stderr
    assert _facts(repository) == {}
    text = (repository.folder / PREVIEW / "site" / "change" / "index.html").read_text()
    assert "No page changes." in text and "<img" not in text.partition("<article")[2]


def test_a_page_of_the_probe_needs_no_run_and_another_folder_is_left_alone(repository: Repository) -> None:
    (repository.folder / "README.md").write_text("Words.\n")
    done = repository.python("-m", "probe", "check", "--since", "main")
    assert done.stdout == "Nothing to check.\n"
    done = repository.run("scripts/preview", "main", "--out", "README.md", status=2)
    assert done.stderr == "README.md cannot be written (File exists): name another folder in --out.\n"
    done = repository.run("scripts/preview", "main", "--out", "probe", status=2)
    assert done.stderr == "probe is no preview and is not empty: name another folder in --out, or remove it.\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "affected"),
    [
        ("families/llama.py", "TITLE = ", "# More.\nTITLE = ", True),
        ("probe/measure/rounding.py", "import math", "import math  # more", True),
        ("probe/render/text.py", "from __future__", "# More.\nfrom __future__", False),
        ("probe/diff/words.py", "from __future__", "# More.\nfrom __future__", False),
        ("constraints.txt", "accelerate==", "# More.\naccelerate==", True),
        ("site_src/records/llama/tiny.json", '"Llama"', '"Lama"', True),
        ("site_src/index.md", "#", "##", False),
    ],
)
def test_what_a_change_can_affect(repository: Repository, path: str, old: str, new: str, affected: bool) -> None:
    file = repository.folder / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    look = "from probe import jobs; from probe.diff.affected import since; print(since('main', jobs.Options()))"
    assert repository.python("-c", look).stdout == ("['llama']\n" if affected else "[]\n")


def test_records_that_the_tree_contradicts_are_named_whoever_measured_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = fixture.write(tmp_path / "measured")
    monkeypatch.setenv("PROBE_RECORDS", str(fixture.write(tmp_path / "committed")))
    assert build._stale(measured) == []
    [record] = (measured / "llama").glob("*.json")
    record.write_text(record.read_text().replace('"holds": true', '"holds": false', 1))
    assert build._stale(measured) == ["llama: `python -m probe llama` makes its records again."]


def test_pages_differ_by_their_article_and_families_that_changed_come_first(tmp_path: Path) -> None:
    sites = {
        "before": {"": "a", "kept/": "b", "gone/": "c"},
        "after": {"": "A", "kept/": "b", "new/": "d", "llama/": "e"},
    }
    for site, pages in sites.items():
        for uri, text in pages.items():
            path = tmp_path / site / uri / "index.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"<title>T {uri or 'front'} - Atlas</title><nav>{site}</nav><article>{text}</article>")
    assert changed(tmp_path / "before", tmp_path / "after", {"llama"}, {"new/"}) == [
        ChangedPage("llama/", "T llama/", "added"),
        ChangedPage("", "T front", "changed"),
        ChangedPage("gone/", "T gone/", "lost"),
    ]
