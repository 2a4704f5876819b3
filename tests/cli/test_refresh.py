"""Refreshing records: what is written, what is kept, and what ends with a sentence."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable

import pytest

from probe import cli, store
from probe.jobs import Job, Outcome
from tests.cli import fakes
from tests.cli.conftest import World

FILES = {f"{family}/{stem}.json" for family in ("alpha_text", "beta_text") for stem in ("tiny", "tiny-two")} | {
    "alpha_text/org--alpha_text-big.json",
    "beta_text/org--beta_text-big.json",
}


def test_all_families_are_written(world: World) -> None:
    assert world.finish("--all").status == 0
    assert set(world.records()) == FILES
    for path in store.record_files("alpha_text"):
        assert store.canonical(store.read_record(path).as_json()).encode() == path.read_bytes()


def test_options_may_stand_between_families_and_reach_the_probe(world: World) -> None:
    result = world.finish("alpha_text", "--dtype", "bfloat16", "beta_text", "--attn", "eager")
    assert result.status == 0
    record = json.loads(world.records()["beta_text/tiny.json"])["checkpoint"]
    assert (record["dtype"], record["attn"]) == ("bfloat16", "eager")


def test_one_checkpoint_and_the_family_read_off_it(world: World) -> None:
    assert world.run("--checkpoint", "org/new").status == 0
    assert set(world.records()) == {"beta_text/org--new.json"}


@pytest.mark.parametrize(("name", "other"), [("tiny", "tiny"), ("org--alpha_text-big", "org/alpha_text-big")])
def test_a_folder_whose_record_would_take_anothers_place_is_refused(world: World, name: str, other: str) -> None:
    world.run("alpha_text")
    before = world.records()
    result = world.run("alpha_text", "--checkpoint", f"/else/{name}")
    assert result.status == 2 and f"would take the place of that of {other}, by its name: rename it" in result.err
    assert world.records() == before
    assert world.run("alpha_text", "--checkpoint", "/else/mine").status == 0
    assert set(world.records()) - set(before) == {"alpha_text/mine.json"}


def test_a_record_of_real_weights_is_kept_where_they_are_not_installed(world: World) -> None:
    world.run("alpha_text", "--checkpoint", "org/alpha_text-big")
    before = world.records()
    world.probed()
    assert "org/alpha_text-big is of real weights" in world.run("alpha_text").out
    assert world.probed() == ["alpha_text tiny", "alpha_text tiny-two"]
    assert before.items() <= world.records().items()
    assert "3 records current" in world.run("alpha_text").out


def test_json_prints_and_writes_nothing(world: World) -> None:
    many = world.run("alpha_text", "--json")
    assert [record["checkpoint"]["id"] for record in json.loads(many.out)] == ["org/alpha_text-big", "tiny", "tiny-two"]
    one = world.run("alpha_text", "--checkpoint", "org/new", "--json")
    assert json.loads(one.out)["checkpoint"]["id"] == "org/new"
    assert world.records() == {}


def test_json_of_current_records_is_the_same_without_probing(world: World) -> None:
    first = world.run("alpha_text", "--json", "--force").out
    world.run("alpha_text")
    world.probed()
    assert world.run("alpha_text", "--json").out == first
    assert world.probed() == []


FAULTS = [
    ("mistake", 3, "two readings"),
    ("bug", 1, "ZeroDivisionError: a bug of two lines"),
    ("death", 1, "its process ended with status 9"),
    ("crash", 1, "its process crashed (SIGSEGV)"),
    ("sleep", 1, "it ran longer than 1 s; `--limit SECONDS` gives it longer"),
    ("hog", 1, "it ran out of memory"),
]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("fault", "status", "sentence"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_failed_checkpoint_keeps_its_family_and_lets_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str, status: int, sentence: str, workers: str
) -> None:
    world.run("alpha_text")
    before = world.records()
    monkeypatch.setenv("FAKE_FAULT", f"org/alpha_text-big={fault}")
    monkeypatch.setenv("FAKE_MARK", "changed")
    result = world.finish("alpha_text", "beta_text", "--force", "--workers", workers, "--limit", "1")
    assert result.status == status
    *_, told, last = result.err.splitlines()
    assert told.startswith("alpha_text · org/alpha_text-big:") and sentence in told
    assert last == "1 of 2 families failed; their records are as they were."
    assert "alpha_text-big failed (" in result.err and "Traceback" not in result.err
    after = world.records()
    assert {name: content for name, content in after.items() if name.startswith("alpha")} == before
    assert set(after) == FILES
    assert "alpha_text" not in result.out and "beta_text: 3 checkpoints probed" in result.out


def test_experiments_that_stopped_are_told_in_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "tiny=stop")
    result = world.run("alpha_text")
    assert result.status == 0 and "3 checkpoints probed" in result.out
    (told,) = [line for line in result.err.splitlines() if "stopped" in line]
    assert told == "alpha_text: experiments that stopped with an error: qk-norm (tiny)."
    monkeypatch.delenv("FAKE_FAULT")
    assert "stopped" not in world.run("alpha_text", "--force").err


def test_the_rest_of_a_family_is_not_run_after_a_crash_and_told_in_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "tiny=death")
    result = world.finish("--all")
    assert world.probed() == ["alpha_text tiny", "beta_text tiny"]
    told = result.err.splitlines()[-3:]
    assert [line.partition(" ended with status 9.")[2] for line in told[:2]] == [
        " (2 more of its checkpoints failed)"
    ] * 2
    assert told[2] == "2 of 2 families failed; their records are as they were."


@pytest.mark.parametrize("asked", [1, 2])
def test_what_was_at_fault_is_told_before_what_was_given_up(capsys: pytest.CaptureFixture[str], asked: int) -> None:
    """A second worker helps from the end of a list, so that what is given up may stand before what was at fault."""
    given_up = Outcome(Job("a", "first", None), message="it was not run after that.", status=1, given_up=True)
    at_fault = Outcome(Job("a", "last", None), message="its process crashed.", status=1)
    assert cli._report({"a": [given_up, at_fault]}, asked, debug=False) == 1
    assert capsys.readouterr().err.startswith("a · last: its process crashed.")


@pytest.mark.parametrize(("fault", "where"), [("crash", "fakes.py"), ("sleep", "fakes.py")])
def test_debug_shows_where_a_process_crashed_or_hung(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str, where: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", f"tiny-two={fault}")
    plain = world.finish("alpha_text", "--limit", "1")
    assert plain.status == 1 and where not in plain.err and "--debug" in plain.err
    shown = world.finish("alpha_text", "--limit", "1", "--debug").err
    assert f'{where}", line' in shown and "in probe_target" in shown


def test_real_weights_take_what_they_need(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "org/new=nap")
    assert world.finish("--checkpoint", "org/new", "--limit", "1").status == 0
    assert set(world.records()) == {"beta_text/org--new.json"}


def test_a_decoder_that_is_newer_than_the_table_is_probed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NEW", "alpha_text new_text")
    assert world.run("new_text").status == 0
    assert world.probed()[0] == "new_text tiny"
    assert world.finish("--all").status == 0
    assert {line.split()[0] for line in world.probed()} == {"alpha_text", "beta_text"}
    assert "new_text: 3 records current" in world.finish("--all").out


def test_what_transformers_has_is_asked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NEW", "new_text")
    assert world.run("new_text", "--checkpoint", "tiny").status == 0
    monkeypatch.delenv("FAKE_NEW")
    assert "no family or command 'newer_text'" in world.run("newer_text").err
    assert world.run("new_text", "--checkpoint", "tiny").status == 0
    (world.folder / "cache" / "decoders.json").write_text("spoilt")
    assert "no family or command 'new_text'" in world.run("new_text").err


def test_debug_shows_the_traceback(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "tiny=bug")
    plain, debug = world.run("alpha_text"), world.run("alpha_text", "--debug")
    assert "Traceback" not in plain.err and "--debug" in plain.err
    assert "Traceback" in debug.err and "ZeroDivisionError" in debug.err


def _interrupt(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("stop", [_interrupt, _kill])
def test_a_stopped_run_leaves_the_records(
    world: World, monkeypatch: pytest.MonkeyPatch, stop: Callable[[int], None], workers: str
) -> None:
    world.run("alpha_text")
    before = world.records()
    world.probed()
    monkeypatch.setenv("FAKE_FAULT", "org/alpha_text-big=sleep")
    monkeypatch.setenv("FAKE_MARK", "changed")
    process = world.start("alpha_text", "--force", "--workers", workers)
    log = world.folder / "log"
    started = time.monotonic()
    while "big" not in log.read_text():
        assert time.monotonic() - started < 60 and process.poll() is None
        time.sleep(0.02)
    stop(process.pid)
    _, err = process.communicate(timeout=30)
    assert world.records() == before
    if stop is _interrupt:
        assert process.returncode == 130
        assert err.strip().splitlines()[-1] == "Stopped. The records are as they were."
        assert "Traceback" not in err


def test_an_interrupt_tells_which_families_were_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "org/beta_text-big=sleep")
    process = world.start("alpha_text", "beta_text")
    started = time.monotonic()
    log = world.folder / "log"
    while not log.exists() or "beta_text org" not in log.read_text():
        assert time.monotonic() - started < 60 and process.poll() is None
        time.sleep(0.02)
    _interrupt(process.pid)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "Stopped. alpha_text is done; the records of the others are as they were."
    assert {name.partition("/")[0] for name in world.records()} == {"alpha_text"}


@pytest.mark.parametrize("command", [("alpha_text",), ("read", "alpha_text", "attention_output")])
def test_an_interrupt_that_a_library_drops_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def read_value(target: fakes.Target, *given: object, **more: object) -> None:
        fakes.probe_target(target, progress=lambda label, share: None)

    monkeypatch.setattr(sys.modules["probe.measure"], "read_value", read_value)
    monkeypatch.setenv("FAKE_FAULT", "tiny=dropped")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = world.run(*command)
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.status == 130 and result.err.endswith("Stopped. The records are as they were.\n")
    assert "half imported" not in result.err and world.records() == {}
    assert after is signal.default_int_handler


def test_an_interrupt_while_records_are_written_is_heard_after_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def interrupted(*paths: str) -> None:
        signal.raise_signal(signal.SIGINT)
        replace(*paths)

    monkeypatch.setattr("os.replace", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        result = world.run("alpha_text")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.status == 130
    assert result.err.strip().endswith("Stopped. alpha_text is done; the records of the others are as they were.")
    assert set(world.records()) == {name for name in FILES if name.startswith("alpha")}
    monkeypatch.undo()


def test_a_full_disk_leaves_the_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("alpha_text")
    before = world.records()
    monkeypatch.setenv("FAKE_MARK", "long " * 20_000)
    limit = 50_000
    process = world.start(
        "alpha_text", "--force", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "no room left" in err and "Traceback" not in err
    assert world.records() == before


def test_what_a_killed_run_left_is_cleaned_and_a_living_one_is_not(world: World) -> None:
    folder = world.folder / "records" / "alpha_text"
    folder.mkdir(parents=True)
    dead, alive = folder / ".tiny.json.4194303.tmp", folder / f".tiny.json.{os.getppid()}.tmp"
    dead.write_text("{")
    alive.write_text("{")
    world.run("alpha_text")
    assert not dead.exists() and alive.exists()


def test_unchanged_records_are_not_rewritten(world: World) -> None:
    world.run("alpha_text")
    path = store.record_path("alpha_text", "tiny")
    os.utime(path, (1, 1))
    assert "0 records changed" in world.run("alpha_text", "--force").out
    assert path.stat().st_mtime == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["alpha"], "that is alpha_text here"),
        (["org/alpha"], "a checkpoint comes after --checkpoint"),
        (["zzz"], "no family or command 'zzz'"),
        (["--checkpoint", "nowhere"], "no checkpoint nowhere"),
        (["--offline"], "name a family"),
        (["--all", "alpha_text"], "--all takes no family"),
        (["alpha_text", "beta_text", "--checkpoint", "x"], "one family at most"),
        (["alpha_text", "--frce"], "nearest: --force"),
        (["alpha_text", "--workers", "0"], "a whole number from 1"),
        (["alpha_text", "--limit", "0"], "a time in seconds"),
        (["alpha_text", "--dtype", "int8"], "'float32'"),
        (["read", "alpha_text"], "VALUE"),
        (["read", "alpha_text", "x", "--layer", "-1"], "a whole number from 0"),
        (["alpha_text", "--checkpoint", "../x"], "cannot name a record"),
    ],
)
def test_a_mistake_ends_with_one_sentence(world: World, arguments: list[str], sentence: str) -> None:
    result = world.run(*arguments)
    assert result.status == 2
    assert sentence in result.err and result.err.count("\n") == 1
    assert world.probed() == [] and world.records() == {}


def test_a_record_that_cannot_be_written_ends_with_one_sentence(world: World) -> None:
    (world.folder / "records").write_text("a file where the folder should be")
    result = world.run("alpha_text")
    assert result.status == 2
    assert str(world.folder / "records") in result.err and "as they were" in result.err


def test_help_without_arguments(world: World) -> None:
    result = world.run()
    assert result.status == 0
    assert "usage" in result.out and "python -m probe read" in result.out


@pytest.mark.parametrize(
    ("source", "sentence"),
    [("TITLE = 'x'", "does not declare CHECKPOINTS, TWINS"), ("TITLE =", "does not parse"), ("TITLE = 1", "as a text")],
)
def test_a_family_module_that_cannot_be_read_is_named(world: World, source: str, sentence: str) -> None:
    (world.families / "gamma.py").write_text(source)
    result = world.run("gamma")
    assert result.status == 2 and "gamma.py" in result.err and sentence in result.err


def test_a_missing_library_names_the_remedy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "nnsight" else find_spec(name))
    for arguments in (["alpha_text"], ["read", "alpha_text", "logits"], ["--checkpoint", "org/x"]):
        result = world.run(*arguments)
        assert result.status == 2 and result.err.startswith("This needs nnsight, not installed here")
    assert world.probed() == []
