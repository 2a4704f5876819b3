"""A second run is answered from the stamp exactly as long as nothing that decides the result has changed."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probe import fingerprint, registry, store
from tests.cli.conftest import World
from tests.conftest import ROOT

ALPHA = ["alpha_text tiny", "alpha_text tiny-two", "alpha_text org/alpha_text-big"]


@pytest.fixture
def code(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the probe's code for the fingerprint to read."""
    copy = world.folder / "probe"
    shutil.copytree(fingerprint.PROBE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "PROBE", copy)
    (copy / "measure").mkdir(exist_ok=True)
    (copy / "measure" / "some.py").write_text("x = 1\n")
    (copy / "measure" / "pins.lock.json").write_text('{"alpha_text/tiny": 1, "beta_text/tiny": 1}')
    (copy / "render").mkdir(exist_ok=True)
    return copy


def _add(path: Path, text: str = "\n# changed\n") -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_nothing_changed(world: World, code: Path) -> None:
    world.run("alpha_text")
    assert world.probed() == ALPHA
    for path in [*code.rglob("*.py"), *world.families.rglob("*")]:
        os.utime(path)
    result = world.run("alpha_text")
    assert "3 records current" in result.out and world.probed() == []


CHANGES: dict[str, Callable[[World, Path], object]] = {
    "the probe's code": lambda world, code: _add(code / "measure" / "some.py"),
    "new code": lambda world, code: (code / "measure" / "more.py").write_text(""),
    "data of the probe": lambda world, code: (code / "measure" / "table.json").write_text("{}"),
    "a pin": lambda world, code: (code / "measure" / "pins.lock.json").write_text('{"alpha_text/tiny": 2}'),
    "the schema": lambda world, code: _add(code / "schema" / "record.py"),
    "how records are written": lambda world, code: _add(code / "store.py"),
    "the family": lambda world, code: _add(world.families / "alpha_text.py"),
    "the families' plumbing": lambda world, code: _add(world.families / "_shared.py"),
    "a config": lambda world, code: _add(world.families / "configs" / "org__alpha_text-big.json", " "),
    "a new config": lambda world, code: (world.families / "configs" / "x.json").write_text('{"m": "alpha_text"}'),
    "a source": lambda world, code: _add(world.families / "configs" / "SOURCES.tsv", "org__alpha_text-big.json\tx\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_runs_again(world: World, code: Path, change: Callable[[World, Path], object]) -> None:
    world.run("alpha_text")
    world.probed()
    change(world, code)
    world.run("alpha_text")
    assert world.probed() == ALPHA


UNRELATED: dict[str, Callable[[World, Path], object]] = {
    "another family": lambda world, code: _add(world.families / "beta_text.py"),
    "another family's config": lambda world, code: _add(world.families / "configs" / "org__beta_text-big.json", " "),
    "another pin": lambda world, code: (code / "measure" / "pins.lock.json").write_text('{"alpha_text/tiny": 1}'),
    "another source": lambda world, code: _add(world.families / "configs" / "SOURCES.tsv", "other.json\tx\n"),
    "the notes": lambda world, code: (world.families / "alpha_text.md").write_text("Notes"),
    "the renderer": lambda world, code: (code / "render" / "page.py").write_text(""),
    "the command line": lambda world, code: _add(code / "cli.py"),
    "an editor's leftover": lambda world, code: (code / "measure" / ".some.py.swp").write_text(""),
}


@pytest.mark.parametrize("change", UNRELATED.values(), ids=UNRELATED)
def test_an_unrelated_change_does_not(world: World, code: Path, change: Callable[[World, Path], object]) -> None:
    world.run("alpha_text")
    world.probed()
    change(world, code)
    world.run("alpha_text")
    assert world.probed() == []


MODULE = "TITLE = 'G'\nCHECKPOINTS = ()\nTWINS = {}\n"
ROW = "gamma_text\tGammaForCausalLM\ttext\t\t\torg/gamma-big\n"
HEAD = "model_type\tclass\tgroup\twrapper\ttitle\tcheckpoints\n"


@pytest.fixture
def table(world: World, code: Path) -> Path:
    """A family without a module: its row of the table, and its pins."""
    (code / "checkpoints" / "factory" / "lock.json").write_text('{"gamma_text/tiny": 1, "delta_text/tiny": 1}')
    path = world.families / "families.tsv"
    path.write_text(HEAD + ROW)
    return path


ROWS: dict[str, tuple[bool, Callable[[World, Path, Path], object]]] = {
    "its row": (True, lambda world, code, table: table.write_text(HEAD + ROW.replace("org/gamma-big", "org/gamma"))),
    "its title": (True, lambda world, code, table: table.write_text(HEAD + ROW.replace("\t\t\t", "\t\tG\t"))),
    "its twins": (
        True,
        lambda world, code, table: (world.families / "twins.json").write_text('{"gamma_text": {"tiny": "org__x"}}'),
    ),
    "its pin": (
        True,
        lambda world, code, table: (code / "checkpoints" / "factory" / "lock.json").write_text(
            '{"gamma_text/tiny": 2}'
        ),
    ),
    "its config": (
        True,
        lambda world, code, table: (world.families / "configs" / "org__gamma-big.json").write_text("1"),
    ),
    "a module of its name": (
        True,
        lambda world, code, table: (world.families / "gamma_text.py").write_text(MODULE),
    ),
    "the plumbing": (True, lambda world, code, table: _add(world.families / "_shared.py")),
    "another row": (False, lambda world, code, table: _add(table, ROW.replace("gamma", "delta"))),
    "another pin": (
        False,
        lambda world, code, table: (code / "checkpoints" / "factory" / "lock.json").write_text(
            '{"gamma_text/tiny": 1}'
        ),
    ),
    "another's twins": (
        False,
        lambda world, code, table: (world.families / "twins.json").write_text('{"delta_text": {"tiny": "org__x"}}'),
    ),
    "a family with a module": (False, lambda world, code, table: _add(world.families / "alpha_text.py")),
}


@pytest.mark.parametrize(("counts", "change"), ROWS.values(), ids=ROWS)
def test_what_counts_of_a_family_without_a_module(
    world: World, code: Path, table: Path, counts: bool, change: Callable[[World, Path, Path], object]
) -> None:
    world.run("gamma_text")
    assert len(world.probed()) == 3
    assert "3 records current" in world.run("gamma_text").out
    change(world, code, table)
    world.run("gamma_text")
    assert bool(world.probed()) == counts


def test_what_families_share_is_read_once(world: World, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("alpha_text")
    world.run("beta_text")
    calls: list[int] = []
    read = fingerprint._code
    monkeypatch.setattr(fingerprint, "_code", lambda: calls.append(1) or read())
    assert "beta_text: 3 records current" in world.run("--all").out
    assert calls == [1]


def test_an_imported_family_counts(world: World, code: Path) -> None:
    _add(world.families / "alpha_text.py", "\nfrom families.beta_text import TITLE as OTHER\n")
    world.run("alpha_text")
    world.probed()
    _add(world.families / "beta_text.py")
    world.run("alpha_text")
    assert world.probed() == ALPHA


def test_what_a_package_holds_inside_itself_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint._installed.__wrapped__()
    for folder in ("apart", "package/inside"):
        (tmp_path / folder / "planted-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "package" / "inside")])
    assert fingerprint._installed.__wrapped__() == before
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "apart")])
    assert "planted-1.0.dist-info" in fingerprint._installed.__wrapped__()


def test_installed_versions_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = fingerprint._installed()
    assert {"torch", "transformers", "nnsight"} <= {name.split("-")[0] for name in installed}
    world.run("alpha_text")
    world.probed()
    newer = [name.replace("torch-2", "torch-99") for name in installed]
    monkeypatch.setattr(fingerprint, "_installed", lambda: newer)
    world.run("alpha_text")
    assert world.probed() == ALPHA


def test_options_count(world: World) -> None:
    world.run("alpha_text")
    world.probed()
    for option in (["--dtype", "bfloat16"], ["--attn", "eager"], ["--device", "cuda"], ["--force"]):
        world.run("alpha_text", *option)
        assert world.probed() == ALPHA


def test_being_offline_does_not_count(world: World) -> None:
    world.run("alpha_text")
    world.probed()
    world.run("alpha_text", "--offline")
    assert world.probed() == []


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: _add(path, " "), lambda path: path.write_text("")])
def test_a_record_changed_by_hand_is_made_again(world: World, harm: Callable[[Path], None]) -> None:
    world.run("alpha_text")
    before = world.records()
    world.probed()
    harm(store.record_path("alpha_text", "tiny-two"))
    world.run("alpha_text")
    assert world.probed() == ["alpha_text tiny-two"]
    assert world.records() == before
    world.run("alpha_text")
    assert world.probed() == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"inputs": 1, "records": 2}'])
def test_a_spoilt_stamp_is_no_stamp(world: World, text: str) -> None:
    world.run("alpha_text")
    world.probed()
    (stamp,) = (world.folder / "cache" / "stamps").iterdir()
    stamp.write_text(text)
    world.run("alpha_text")
    assert world.probed() == ALPHA


def test_a_failed_run_leaves_no_stamp(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "tiny=bug")
    world.run("alpha_text")
    monkeypatch.delenv("FAKE_FAULT")
    world.probed()
    world.run("alpha_text")
    assert world.probed() == ALPHA


def test_a_warm_run_is_light_and_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real families: no torch, no pydantic, and little more CPU time than the interpreter's own start."""
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    family, options = "gemma4_text", {"dtype": None, "device": "cpu", "attn": None}
    made = {}
    for checkpoint in registry.get(family).checkpoints:
        text = store.canonical({"filler": "x" * 500_000})
        store.write_all({store.record_path(family, checkpoint): text})
        made[checkpoint] = store.digest(text)
    fingerprint.write(family, options, fingerprint.Stamp(fingerprint.inputs(family, options), made))

    look = (
        "import sys; from probe.cli import main; status = main(['gemma4_text']);"
        "print(sorted({'torch', 'numpy', 'pydantic', 'transformers', 'nnsight', 'tqdm'} & set(sys.modules)), status)"
    )
    shown = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [f"gemma4_text: {len(made)} records current; --force probes again.", "[] 0"]

    def cost(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    extra = [cost("-m", "probe", family) - cost("-c", "pass") for _ in range(5)]
    assert min(extra) < 0.4, extra  # CPU time, which a busy machine changes little; importing torch alone takes more


STAMP_ALL = """
from probe import fingerprint, installed, registry, store
options = {"dtype": None, "device": "cpu", "attn": None}
shared = fingerprint.Surroundings(options)
text = store.canonical({"filler": "x" * 80_000})
for family in registry.names():
    path = store.record_path(family, "tiny")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    fingerprint.write(family, options, fingerprint.Stamp(shared.inputs(family), {"tiny": store.digest(text)}))
store.write_all({store.cache_dir() / "decoders.json": store.canonical({"key": installed._key(), "decoders": {}})})
"""
WARM_ALL = """
import resource, sys
from probe.cli import main
status = main(["--all"])
spent = resource.getrusage(resource.RUSAGE_SELF)
print(sorted({"torch", "numpy", "pydantic", "transformers", "tqdm"} & set(sys.modules)), status)
print(spent.ru_utime + spent.ru_stime)
"""


def test_a_warm_run_of_every_family_is_light_and_quick(tmp_path: Path) -> None:
    """All decoders of transformers, a record of usual size each: no library is imported, and little CPU time taken."""
    for part in ("probe", "families"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    folders = {"PROBE_RECORDS": str(tmp_path / "records"), "PROBE_CACHE": str(tmp_path / "cache")}

    def run(code: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path, env={**os.environ, **folders}, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout.splitlines()

    count = len(registry.names())
    assert count >= 150 and run(STAMP_ALL) == []
    run(WARM_ALL)  # compiles the copy
    told, heavy, spent = run(WARM_ALL)
    assert told == f"{count} families: {count} records current; --force probes again." and heavy == "[] 0"
    assert float(spent) < 1.5, spent
