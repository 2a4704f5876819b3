"""A crawl over a built site of committed records of many kinds: every link and anchor leads somewhere, every id is
given once, nothing is loaded from elsewhere, and each value of a record has a row of its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from probe.render.text import row_id
from probe.store import read_record
from tests.render.conftest import ROOT, Site, render
from tests.render.crawl import Crawl

RECORDS = ROOT / "site_src" / "records"
KINDS = {
    "llama/tiny": "dense",
    "axk1/tiny": "dense and mixture under one name",
    "olmo_hybrid/tiny": "blocks of two classes",
    "mamba/tiny": "recurrent",
    "rwkv/tiny": "recurrent, states without a place",
    "longcat_flash/tiny": "two of each sublayer",
    "falcon/tiny": "sublayers that join at one add",
    "gemma4_text/tiny-vision": "a vision encoder with the text model's quirks",
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Site:
    records, directory = (tmp_path_factory.mktemp(name) for name in ("kinds", "kinds-site"))
    shutil.copy(RECORDS / "schema.json", records)
    for name in KINDS:
        (records / name).parent.mkdir(exist_ok=True)
        shutil.copy(RECORDS / f"{name}.json", records / f"{name}.json")
    done = render("build", "--records", str(records), "--site", str(directory))
    assert done.returncode == 0, done.stderr
    return Site(records, directory)


def test_no_link_is_broken_and_nothing_comes_from_elsewhere(kinds: Site, site: Site) -> None:
    for each in (kinds, site):
        crawl = Crawl(each.directory)
        assert len(crawl.pages) > 20 and sum(len(page.links) for page in crawl.pages.values()) > 1000
        assert list(crawl.faults()) == []


def test_each_value_has_a_row_of_its_own_and_the_drawing_of_its_block_leads_there(kinds: Site) -> None:
    for path in sorted(kinds.records.glob("*/*.json")):
        record, page = read_record(path), kinds.page(path.parent.name)
        rows = re.findall(r'<tr id="(v-[^"]+)"', page)
        for part in (record, record.vision):
            wanted = [row_id(value, part.values) for value in part.values] if part else []
            assert len(set(wanted)) == len(wanted) and set(wanted) <= set(rows), path
        drawn = set(re.findall(r'xlink:href="#(v-[^"]+)"', page))
        served = {row_id(v, record.values) for v in record.values if "layers[i]" in v.host and v.blocks}
        assert served <= drawn, sorted(served - drawn)


def _write(site: Path, **pages: str) -> None:
    for name, text in pages.items():
        path = site / name.replace("__", "/") / "index.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _faults(site: Path) -> Iterator[str]:
    return (fault.partition(": ")[2] for fault in Crawl(site).faults())


def test_the_crawl_is_awake(tmp_path: Path) -> None:
    _write(
        tmp_path,
        a='<p id="x"></p><p id="x"></p><a href="../b/#v-y">ok</a><a href="../b/#block-3.v-y">ok</a>'
        '<a href="../c/">no</a><a href="../b/#z">no</a><a href="../b/#block-3.z">no</a><a href="https://else.where/">ok</a>',
        b='<svg><a xlink:href="#v-n"></a></svg><tr id="v-y"><script src="https://cdn/x.js"></script><img src="data:,">'
        '<link rel="canonical" href="https://ok"><link rel="stylesheet" href="../no.css">',
    )
    assert list(_faults(tmp_path)) == [
        "the id 'x' is given 2 times",
        "leads to #block-3.z of b/index.html, which is not there",
        "leads to #z of b/index.html, which is not there",
        "leads to c/index.html, which is not there",
        "leads to #v-n of b/index.html, which is not there",
        "leads to no.css, which is not there",
        "loads https://cdn/x.js",
    ]
