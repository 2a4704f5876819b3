"""Pages that other processes compose: the same as here, and composed here where another process fails."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from probe.render import ahead as ahead_module
from probe.render.ahead import FEW, Ahead
from probe.render.generated import Generated, Site
from tests.render import fixture


@pytest.fixture
def site(tmp_path: Path) -> Site:
    records, notes = tmp_path / "records", tmp_path / "notes"
    fixture.write(records)
    notes.mkdir()
    return Site.read(records, notes)


def _never(page: Generated) -> Generated:
    def fails() -> None:
        pytest.fail(f"{page.uri} was composed here")

    return replace(page, compose=fails)


def test_another_process_composes_the_last_pages_first(site: Site) -> None:
    pages = site.pages()
    ahead = Ahead(site, pages, processes=1)
    try:
        end = time.monotonic() + 120
        while not list(Path(ahead._folder.name).glob("*")) and time.monotonic() < end:
            time.sleep(0.01)
        assert ahead.take(_never(pages[-1])) == pages[-1].compose()
        assert [ahead.take(page) for page in pages[:-1]] == [page.compose() for page in pages[:-1]]
    finally:
        ahead.stop()
    assert not Path(ahead._folder.name).exists() and ahead._others[0].poll() is not None


def test_what_another_process_leaves_is_composed_here(site: Site) -> None:
    pages = site.pages()
    ahead = Ahead(site, pages, processes=1)
    try:
        (Path(ahead._folder.name) / "0").touch()  # as if claimed by a process that ends before the page is done
        ahead._others[0].kill()
        assert ahead.take(pages[0]) == pages[0].compose()
    finally:
        ahead.stop()


def test_where_another_process_cannot_read_the_records_all_is_composed_here(site: Site, tmp_path: Path) -> None:
    pages = site.pages()
    ahead = Ahead(replace(site, records=tmp_path / "none"), pages, processes=1)
    try:
        ahead._others[0].wait(120)
        assert ahead._others[0].returncode and ahead.take(pages[-1]) == pages[-1].compose()
    finally:
        ahead.stop()


def test_a_process_that_stands_still_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = site.pages()
    monkeypatch.setattr(ahead_module, "PATIENCE", 0.1)
    ahead = Ahead(site, pages, processes=1)
    try:
        ahead._others[0].send_signal(signal.SIGSTOP)
        (Path(ahead._folder.name) / "0").touch(exist_ok=True)
        assert ahead.take(pages[0]) == pages[0].compose()
    finally:
        ahead._others[0].send_signal(signal.SIGCONT)
        ahead.stop()


def test_where_nothing_can_be_written_all_is_composed_here(tmp_path: Path) -> None:
    assert ahead_module._claimed(tmp_path / "none", 0) and ahead_module._claimed(tmp_path, 0)
    assert not ahead_module._claimed(tmp_path, 0)


def test_a_process_whose_first_one_has_ended_composes_nothing(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    ahead_module._compose(folder, site.records, site.notes, first=os.getpid())
    assert not list(folder.iterdir())


def test_few_pages_are_composed_here(site: Site) -> None:
    ahead = Ahead(site, site.pages()[:FEW])
    assert not ahead._others
    ahead.stop()
