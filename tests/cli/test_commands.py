"""`read`, `list` and `schema`, and the records that are committed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import termios
import tomllib
from pathlib import Path
from typing import Any

import pytest

from probe import cli, registry, schema, store
from probe.errors import ProbeError
from probe.guide import results as guide
from probe.kernels import results as kernels
from probe.kernels.command import NEEDED
from probe.kernels.command import kernels as kernels_command
from tests.cli.conftest import World
from tests.conftest import ROOT

COMMITTED = sorted((ROOT / "site_src" / "records").glob("*/[!.]*.json"))


def test_read_shows_where_and_what(world: World) -> None:
    out = world.run("read", "alpha_text", "attention_output").out
    title, place, shape = "attention_output of tiny (alpha_text)", "the output projection's output", "[1, 4, 8] float32"
    host, attention = "host       model.layers[2].self_attn", "attention  eager"
    for part in (title, host, attention, place, shape, "mean       0.25", "weights    a tiny twin's, drawn at random"):
        assert part in out


def test_read_shows_the_top_tokens(world: World) -> None:
    lines = world.run("read", "alpha_text", "next_token_probs", "--prompt", "In", "--layer", "2").out.splitlines()
    assert lines[-2].split()[:2] == ["top", "1"] and "50.00%" in lines[-2] and "' Paris'" in lines[-2]


def test_read_as_json(world: World) -> None:
    data = json.loads(world.run("read", "alpha_text", "attention_output", "--checkpoint", "org/x", "--json").out)
    assert data["checkpoint"] == "org/x" and data["weights"] == "loaded" and data["shape"] == [1, 4, 8]
    assert data["host"] == "model.layers[2].self_attn"
    assert data["stats"] == {"mean": 0.25, "max": None}


def test_read_of_borrowed_keys_names_the_block_that_lends_them(world: World) -> None:
    world.run("alpha_text")
    path = world.folder / "records" / "alpha_text" / "tiny.json"
    data = json.loads(path.read_text())
    data["values"][0]["name"], data["layer_types"] = "attention_keys", ["full", "sliding", "full"]
    measured = {"last_of_its_kind": True}
    data["experiments"] = [{"slug": "borrowed-kv", "blocks": [2], "measured": measured}]
    path.write_text(json.dumps(data))
    assert "borrowed   from layers[0]" in world.run("read", "alpha_text", "attention_keys").out
    assert json.loads(world.run("read", "alpha_text", "attention_keys", "--json").out)["borrowed_from"] == 0
    measured["last_of_its_kind"] = False
    path.write_text(json.dumps(data))
    assert "borrowed" not in world.run("read", "alpha_text", "attention_keys").out


def test_a_warning_is_not_said_before_a_refusal(world: World) -> None:
    result = world.run("alpha_text", "--device", "gpu")
    assert result.status == 2 and result.err == "'gpu' is not a device of torch.\n"


def test_kernels_of_a_family_without_a_mixer_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernels", "mamba2", "gpt2"]) == 2
    assert "No record of gpt2 has a mixer" in capsys.readouterr().err


def test_read_of_what_is_not_there_gives_the_reason(world: World) -> None:
    result = world.run("read", "alpha_text", "attention_output", "--layer", "7")
    assert result.status == 2 and "Block 7 borrows" in result.err and result.out == ""


def test_read_of_an_unknown_value_names_the_nearest_without_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("alpha_text")
    monkeypatch.setitem(sys.modules, "probe.measure", None)
    result = world.run("read", "alpha_text", "atention_output")
    assert result.status == 2 and "nearest: attention_output" in result.err
    result = world.run("read", "alpha_text", "soul")
    assert result.status == 2 and result.err == "No record of alpha_text has a value 'soul'; it has attention_output.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("lst",), "There is no family or command 'lst' (nearest: list"),
        (("alpha_txt",), "There is no family or command 'alpha_txt' (nearest: alpha_text"),
        (("alpha_text", "read"), "read is a command, and comes first"),
        (("alpha_text", "--checkpoint", ""), "argument --checkpoint: is empty"),
        (("read", "alpha_text", "x", "--checkpoint", " "), "argument --checkpoint: is empty"),
        (("check", "--since", ""), "argument --since: is empty"),
        (("check", "--into", ""), "argument --into: is empty"),
        (("check", "--into", __file__), "argument --into: " + __file__ + " is no folder"),
        (("diff", ""), "argument BASE: is empty"),
    ],
)
def test_a_slip_is_told_in_one_sentence_that_fits(world: World, arguments: tuple[str, ...], sentence: str) -> None:
    result = world.run(*arguments)
    assert result.status == 2 and sentence in result.err and len(result.err.splitlines()) == 1
    assert world.probed() == []


def test_a_device_that_is_none_is_told_before_anything_is_probed(world: World) -> None:
    for command in (["alpha_text"], ["alpha_text", "--checkpoint", "tiny"], ["read", "alpha_text", "attention_output"]):
        result = world.run(*command, "--device", "gpu")
        assert result.status == 2 and result.err.endswith("'gpu' is not a device of torch.\n"), result
        assert "loading the libraries" not in result.err
    assert world.probed() == [] and world.records() == {}


def test_an_interrupt_that_says_nothing_is_told_on_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["probe.measure"], "read_value", stops)
    result = world.run("read", "alpha_text", "attention_output")
    assert result.status == 130
    assert result.err == "loading the libraries\nStopped. The records are as they were.\n"


def test_list_counts_and_a_familys_own_shows_each(world: World) -> None:
    world.run("alpha_text", "--checkpoint", "tiny")
    world.run("alpha_text", "--checkpoint", "local")
    absent = "No config is at hand."
    assert json.loads(world.run("list", "--json").out)[0] == {
        "family": "alpha_text",
        "title": "Alpha",
        "checkpoints": [
            {"id": "tiny", "kind": "tiny", "record": True, "reason": None, "fault": None},
            {"id": "tiny-two", "kind": "tiny", "record": False, "reason": None, "fault": None},
            {"id": "org/alpha_text-big", "kind": "config", "record": False, "reason": None, "fault": None},
            {"id": "org/alpha_text-huge", "kind": None, "record": False, "reason": absent, "fault": None},
            {"id": "local", "kind": "tiny", "record": True, "reason": None, "fault": None},
        ],
    }
    head, alpha, beta, total, _ = world.run("list").out.splitlines()
    assert head.split() == ["family", "title", "twins", "builds", "real", "unprobed", "absent"]
    assert alpha.split() == ["alpha_text", "Alpha", "2", "·", "·", "2", "1"]
    assert beta.split() == ["beta_text", "Beta", "·", "·", "·", "3", "1"]
    assert total == "2 families: 2 records, 5 more checkpoints that can be probed here, 2 that cannot."
    lines = [line.rstrip() for line in world.run("list", "alpha_text").out.splitlines()]
    assert lines[0] == "alpha_text  Alpha" and not any("beta" in line for line in lines)
    assert lines[1].split() == ["●", "tiny", "tiny", "twin"] and lines[2].startswith("  ○ tiny-two")
    assert lines[4].startswith("  – ") and lines[4].endswith(f"org/alpha_text-huge  {absent}")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"family": "alpha_text", "checkp', "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"family": "alpha_text", "checkpoint": {"id": "tiny"}, "schema": 999}', "version 999 of the format, newer"),
        (b'{"family": "alpha_text"}', "does not say what it is of"),
        (b'{"family": "alpha_text", "checkpoint": {"id": "tiny-two"}}', "is of alpha_text/tiny-two"),
    ],
)
def test_list_shows_a_broken_record_as_one(world: World, content: bytes, sentence: str) -> None:
    world.run("alpha_text")
    (world.folder / "records" / "alpha_text" / "tiny.json").write_bytes(content)
    tiny, two, *_ = json.loads(world.run("list", "--json").out)[0]["checkpoints"]
    assert tiny["record"] is False and sentence in tiny["fault"] and "alpha_text --force" in tiny["fault"]
    assert two["record"] is True and two["fault"] is None
    assert world.run("list").out.splitlines()[1].split() == ["alpha_text", "Alpha", *"2···1", "1", "broken"]
    line = world.run("list", "alpha_text").out.splitlines()[1]
    assert line.startswith("  ✗ tiny ") and line.endswith(tiny["fault"])


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "alpha_text"), ("check", "alpha_text"), ("kernels", "alpha_text")]
)
def test_a_folder_of_records_that_is_not_there_is_not_one_without_any(world: World, arguments: tuple[str, ...]) -> None:
    shutil.rmtree(world.folder / "records", ignore_errors=True)
    found = world.run(*arguments)
    assert found.status == 2 and found.out == ""
    assert found.err == (
        f"There is no folder of records {world.folder / 'records'}; "
        "PROBE_RECORDS names it: name another, or unset it.\n"
    )


def test_a_check_of_no_records_at_all_is_a_mistake(world: World) -> None:
    (world.folder / "records").mkdir()
    found = world.run("check")
    assert found.status == 2 and found.err.startswith(f"There is no record at {world.folder / 'records'} to check; ")


def test_what_a_terminals_encoding_lacks_is_written_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "probe", "list", "gpt2"], cwd=ROOT, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == b"" and rb"\u25cf tiny" in done.stdout


def test_list_of_every_family_is_light_and_quick() -> None:
    """All decoders of transformers, on a line each: no torch, no transformers, little CPU time."""
    look = (
        "import sys; from probe.cli import main; main(['list']);"
        "print(sorted({'torch', 'numpy', 'pydantic', 'transformers'} & set(sys.modules)))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    *lines, heavy = shown.splitlines()
    assert heavy == "[]" and len(lines) == len(registry.names()) + 3 and len(registry.names()) >= 150
    assert max(map(len, lines)) <= 120
    assert after.ru_utime - before.ru_utime < 1.0


def test_list_into_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "probe", "list"], cwd=ROOT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.stderr == b""


def test_every_family_can_be_read() -> None:
    for family in registry.families():
        assert family.title and family.twins and bool(family.doc) == bool(family.path), family.name
        assert len(set(family.checkpoints)) == len(family.checkpoints)


def test_schema_is_written_beside_the_records(world: World) -> None:
    assert world.run("schema").status == 0
    assert json.loads(world.records()["schema.json"]) == schema.json_schema()
    assert world.run("schema", "--json").out.encode() == world.records()["schema.json"]


def test_the_committed_schema_is_current() -> None:
    text = (ROOT / "site_src" / "records" / "schema.json").read_text()
    assert text == store.canonical(schema.json_schema()), "run `python -m probe schema`"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_committed_record_is_valid_canonical_and_in_its_place(path: Path) -> None:
    record = store.read_record(path)
    assert path.read_text() == store.canonical(record.as_json())
    assert (record.family, store.file_stem(record.checkpoint.id)) == (path.parent.name, path.stem)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"a": 1', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"schema": 99, "new": 1}', "version 99 of the format, newer than this code"),
        (b'{"schema": 1}', "does not fit the schema (family: Field required)"),
    ],
)
def test_a_corrupt_record_is_named_with_the_remedy(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "alpha_text" / "tiny.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ProbeError) as caught:
        store.read_record(path)
    assert str(path) in str(caught.value) and sentence in str(caught.value)
    assert "python -m probe alpha_text --force" in str(caught.value)


@pytest.mark.parametrize(
    ("results", "command"),
    [(kernels, "python -m probe kernels`"), (guide, "python -m probe guide --force`")],
    ids=["kernels", "guide"],
)
@pytest.mark.parametrize("content", ["{", "{}"])
def test_corrupt_results_are_named_with_the_command_that_writes_them(
    tmp_path: Path, results: Any, command: str, content: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ProbeError) as caught:
        results.read(path)
    assert str(path) in str(caught.value) and command in str(caught.value)


def test_canonical_text() -> None:
    assert store.canonical({"b": 1, "a": ["é", 1.0, None]}) == '{\n "a": [\n  "é",\n  1.0,\n  null\n ],\n "b": 1\n}\n'
    with pytest.raises(ValueError):
        store.canonical(float("nan"))


def test_the_cache_is_named_after_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == store.CACHE_NAME


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = project["optional-dependencies"].values()
    for requirement in [*project["dependencies"], *(name for extra in extras for name in extra)]:
        name = requirement.split(">=")[0].split("==")[0]
        assert "==" in requirement or name.lower() in pinned, requirement


def test_the_readme_installs_what_an_extra_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "README.md").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^pip install --no-deps +(\w.+)$", text, re.M)
    words = subprocess.run(["bash", "-c", f"printf '%s\n' {command}"], capture_output=True, text=True, check=True)
    assert sorted(words.stdout.split()) == sorted(extras["real"])


def test_the_command_kernels_names_what_its_extra_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name.partition("==")[0] for name in extras["kernels"]} == {*NEEDED.values()}


def test_the_command_kernels_has_transformers_leave_what_it_watches_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def heavy(module: str) -> None:
        raise ProbeError(f"USE_HUB_KERNELS={os.environ['USE_HUB_KERNELS']}")

    monkeypatch.setenv("USE_HUB_KERNELS", "YES")
    monkeypatch.setattr("probe.kernels.command._require_packages", lambda: None)
    monkeypatch.setattr("probe.jobs.heavy", heavy)
    with pytest.raises(ProbeError, match="=NO"):
        kernels_command(["mamba2"])


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(world: World) -> None:
    process = world.start("alpha_text")
    _, err = process.communicate(timeout=60)
    assert err.splitlines()[0] == "loading the libraries"
    assert "alpha_text · tiny (1/3, " in err and "\r" not in err

    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    terminal = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake_main", "alpha_text", "--force"],
        cwd=ROOT, env={**os.environ, "FAKE_FAMILIES": str(world.families)}, stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while True:
            shown += os.read(master, 65536)
    os.close(master)
    terminal.wait(timeout=60)
    assert terminal.stdout is not None and "3 checkpoints probed" in terminal.stdout.read().decode()
    assert "alpha_text · tiny-two: halfway  50%" in shown.decode(errors="replace")


@pytest.mark.parametrize(
    ("family", "asked", "status", "said"),
    [
        ("gpt_neox", "resid_mid", 4, "Parallel block: on every block the attention and the MLP read the same point"),
        ("gpt_neox", "layer_mid", 4, "gpt_neox has no layer_mid. Parallel block:"),
        ("llama", "blocks.3.hook_resid_mid", 2, "is TransformerLens's name for layer_mid: ask for layer_mid."),
        ("llama", "hook_mlp_in", 2, "ask for mlp_input; blocks.{i}.hook_mlp_in is another tensor"),
        ("mamba", "hook_pattern", 4, "no record of mamba has that value"),
    ],
)
def test_read_knows_other_tools_names(
    family: str, asked: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["read", family, asked]) == status
    assert said in capsys.readouterr().err
