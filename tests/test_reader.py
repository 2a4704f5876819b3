"""The reader: records from a folder and from a site, values, paths, and what it says to a mistake."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from probe import reader
from probe.errors import ProbeError
from tests.conftest import ROOT
from tests.render import fixture

SMOL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the data of a published site."""
    from probe.render.generated import Site

    directory = tmp_path_factory.mktemp("site")
    made = Site.read(folder, directory)
    for uri, path in made.copied():
        (directory / uri).parent.mkdir(parents=True, exist_ok=True)
        (directory / uri).write_bytes(path.read_bytes())
    for uri, text in made.written("/"):
        (directory / uri).parent.mkdir(parents=True, exist_ok=True)
        (directory / uri).write_text(text)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_site_and_a_folder_give_the_same(folder: Path, site: str) -> None:
    assert reader.families(site) == reader.families(folder) == ["gemma4_text", "llama", "llama4_text"]
    for family in reader.families(folder):
        ids = reader.checkpoints(family, folder)
        assert reader.checkpoints(family, site) == ids
        assert reader.load(family, source=site) == reader.load(family, source=folder)
        for checkpoint in ids:
            assert reader.load(family, checkpoint, site) == reader.load(family, checkpoint, folder)
            assert reader.load(family, checkpoint, folder).checkpoint.id == checkpoint


def test_without_a_checkpoint_it_is_that_of_the_familys_page(folder: Path) -> None:
    assert reader.load("gemma4_text", source=folder).checkpoint.id == "google/gemma-4-E2B-it"
    assert reader.load("llama", source=folder).checkpoint.id == SMOL


def test_values_are_those_served(folder: Path) -> None:
    record = reader.load("llama4_text", source=folder)
    names = {value.name for value in reader.values(record)}
    assert {"router_logits", "attention_keys", "image_features"} <= names and "expert_weights" not in names
    gemma = reader.load("gemma4_text", source=folder)
    hosts = {value.host for value in reader.values(gemma, name="mlp_neurons")}
    assert hosts == {"model.layers[i].mlp", "model.vision.layers[i].mlp"}
    assert all(value.host == "model" for value in reader.values(record, host="model"))
    dense = reader.load("llama4_text", "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", folder)
    assert not list(reader.values(dense, name="router_logits", block=0))
    assert len(list(reader.values(dense, name="router_logits", block=1))) == 1


def test_a_path_names_a_block(folder: Path) -> None:
    record = reader.load("llama4_text", "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", folder)
    [value] = reader.values(record, name="router_logits")
    path = reader.module_path(value, block=1)
    assert path and ".layers.1." in path and path.endswith("router.proj")
    with pytest.raises(ProbeError, match="say which with block="):
        reader.module_path(value)
    with pytest.raises(ProbeError, match="Block 0 does not have"):
        reader.module_path(value, block=0)
    [logits] = reader.values(record, name="logits")
    assert logits.hf and reader.module_path(logits) == logits.hf.path


@pytest.mark.parametrize("source", ["folder", "site"])
def test_a_mistake_is_one_sentence(source: str, folder: Path, request: pytest.FixtureRequest) -> None:
    where = request.getfixturevalue(source)
    with pytest.raises(ProbeError, match=r"no record of the family 'lama' at .*nearest: llama"):
        reader.load("lama", source=where)
    with pytest.raises(ProbeError, match="no record of the family"):
        reader.checkpoints("lama", where)
    with pytest.raises(ProbeError, match="no record of the checkpoint 'tiny-mha'"):
        reader.load("llama", "tiny-mha", where)
    for family in ("", ".", "..", "llama/", "schema.json"):
        with pytest.raises(ProbeError, match=f"no record of the family '{re.escape(family)}'"):
            reader.load(family, source=where)
    with pytest.raises(ProbeError, match="no record of the checkpoint ''"):
        reader.load("llama", "", where)


def test_a_filter_that_can_match_nothing_is_a_mistake(folder: Path) -> None:
    record = reader.load("llama", source=folder)
    with pytest.raises(ProbeError, match=r"No record has a host 'foo'; this one has model, .*model\.layers\[i\]\.mlp"):
        reader.values(record, host="foo")
    with pytest.raises(ProbeError, match=r"write \[i\] for a block's index"):
        reader.values(record, host="model.layers[3].mlp")
    with pytest.raises(ProbeError, match="No record has a value 'mlp_outputs' .nearest: mlp_output"):
        reader.values(record, name="mlp_outputs")
    with pytest.raises(ProbeError, match=f"no block {len(record.blocks)}; it has {len(record.blocks)}"):
        reader.values(record, block=len(record.blocks))
    assert not list(reader.values(record, name="router_logits"))  # other families have it
    assert not list(reader.values(record, host="model.vision.layers[i]"))


def test_no_records_and_no_site(tmp_path: Path, site: str) -> None:
    for nowhere in (tmp_path / "none", "", __file__):
        with pytest.raises(ProbeError, match="no records at"):
            reader.families(nowhere)
    with pytest.raises(ProbeError, match=r"none/index\.json cannot be read \(Not Found\)|File not found"):
        reader.families(f"{site}/none")
    with pytest.raises(ProbeError, match="cannot be read"):
        reader.families("http://127.0.0.1:9")
    for address in ("http://[x", "http://a b", "https://"):
        with pytest.raises(ProbeError, match="cannot be read"):
            reader.families(address)


def test_the_page_of_the_data_shows_what_the_reader_prints() -> None:
    """Its example, run on the committed records, against what the page says it prints."""
    page = (ROOT / "site_src" / "data.md").read_text()
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    for name in ("families", "checkpoints", "load", "values", "module_path", "index"):
        assert f"reader.{name}(" in page and (getattr(reader, name).__doc__ or "").strip()
