"""The committed numbers: whole, of the twins whose records name such code, and told on their pages as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from probe.checkpoints import load
from probe.errors import ProbeError
from probe.kernels import command, measure, results
from probe.render.know import kernels
from probe.render.know.subject import Subject
from probe.schema import Provenance
from probe.schema.kernels import Comparison, Difference, KernelResults
from probe.store import canonical
from tests.conftest import ROOT
from tests.render.test_know import committed, plain

FOUND = results.committed()
PROVENANCE = Provenance(torch="2", transformers="5", nnsight="0", device="cpu", python="3.11")
SCAN = {"function": "mamba2_chunk_scan", "package": "mamba_ssm", "stand_in": "mamba_chunk_scan_combined"}
STEP = {"function": "mamba2_selective_state_update", "package": "mamba_ssm", "stand_in": "selective_state_update"}


def test_the_file_is_canonical_and_of_twins_that_there_are() -> None:
    assert FOUND is not None
    assert results.PATH.read_text() == canonical(FOUND.model_dump(mode="json"))
    for family, twins in FOUND.families.items():
        assert {*twins} <= {target.id for target in measure.twins(family)}


@pytest.mark.parametrize("family", command.mixing())
def test_the_file_holds_every_twin_that_has_such_functions(family: str) -> None:
    assert FOUND is not None
    for target in measure.twins(family):
        named = {function.__name__ for function in measure.functions(load(target).module)}
        assert named == {each.function for each in results.of(FOUND, family, target.id)}


def test_each_function_has_numbers_or_a_reason() -> None:
    assert FOUND is not None and FOUND.provenance.transformers == metadata.version("transformers")
    for each in (each for twins in FOUND.families.values() for compared in twins.values() for each in compared):
        assert (each.reason is None) == bool(each.differences) == bool(each.calls)


def test_the_kernels_that_ran_computed_what_the_pytorch_code_does() -> None:
    """Each to within float32's rounding of many sums: had the arguments been taken otherwise, they would be far off."""
    assert FOUND is not None
    ran = [d for f in FOUND.families.values() for t in f.values() for each in t for d in each.differences]
    assert ran and max(each.apart / each.largest for each in ran) < 1e-5


@pytest.mark.parametrize("broken", ['{"ran": "abacus"}', "[]", "{"])
def test_a_broken_file_is_told_in_one_sentence(broken: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    path.write_text(broken)
    with pytest.raises(ProbeError, match=re.escape(str(path))):
        results.read(path)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    assert results.read(path) is None
    assert results.write(made(Comparison(**SCAN, during="prompt", calls=0, reason="it rained")), path)
    found = results.read(path)
    assert found is not None and not results.write(found, path)
    assert [each.reason for each in results.of(found, "mamba2", "tiny")] == ["it rained"]
    unknown = [results.of(found, "mamba2", "other"), results.of(found, "llama", "tiny"), results.of(None, "a", "b")]
    assert unknown == [[], [], []]


def made(*compared: Comparison, **other: Any) -> KernelResults:
    data = {"provenance": PROVENANCE, "ran": "interpreter", "packages": {"mamba_ssm": "2.3", "triton": "3.9"}, **other}
    return KernelResults(**data, families={"mamba2": {"tiny": list(compared)}})


def numbers(names: dict[str, str], during: Any, *apart: float) -> Comparison:
    found = [Difference(of=of, apart=a, largest=30.0) for of, a in zip(("output", "state"), apart, strict=True)]
    return Comparison(**names, during=during, calls=3, dtype="float32", differences=found)


def told(found: KernelResults | None) -> str:
    subject = Subject(committed("mamba2", "tiny"))
    said = [kernels.beside(subject, SCAN["function"], found), *kernels.others(subject, [SCAN["function"]], found)]
    return re.sub(r"<[^>]+>", "", " ".join(said)).replace("&#39;", "'")


def test_a_page_tells_how_far_apart_and_on_what_it_ran() -> None:
    said = told(made(numbers(SCAN, "prompt", 4e-6, 0.0), numbers(STEP, "step", 0.5, 0.25)))
    assert (
        "Called on the same float32 arguments of a prompt, it gives the output to within 4e-6 (numbers up to 30)"
        in said
    )
    assert "and the state exactly (numbers up to 30)." in said and "the state to within 0.25" in said
    assert "transformers runs its selective_state_update in place of mamba2_selective_state_update. Called" in said
    assert "Triton's interpreter on a CPU, not on a GPU (mamba_ssm 2.3, triton 3.9)" in said
    on_device = told(made(numbers(SCAN, "prompt", 4e-6, 0.0), ran="cuda", device="Planted 100"))
    assert "ran on Planted 100: mamba_ssm 2.3" in on_device and "interpreter" not in on_device


def test_a_page_tells_why_there_is_no_number() -> None:
    reason = "`planted_cuda` is needed"
    missing = [Comparison(**names, during=None, calls=0, reason=reason) for names in (SCAN, STEP)]
    said = told(made(*missing))
    assert said.startswith(
        "How far its numbers are apart was not measured: planted_cuda is needed. Where mamba_ssm can"
    )
    assert "its selective_state_update too; how far its numbers are from the PyTorch code's was not measured:" in said
    assert "interpreter" not in said
    assert told(None) == told(made()) == "How far its numbers are apart was not measured."


def test_the_pages_have_the_committed_numbers() -> None:
    text = plain(committed("mamba2", "tiny"), "know-loading")
    assert FOUND is not None
    for each in FOUND.families["mamba2"]["tiny"]:
        assert f"{each.stand_in}" in text
    assert "interpreter" in text and "not measured: causal_conv1d_cuda is needed" in text
    assert "interpreter" not in plain(committed("gemma3_text", "tiny"), "know-loading")
    text = plain(committed("lfm2", "tiny"), "know-loading")
    assert "transformers runs its causal_conv1d_fn and causal_conv1d_update; how far their numbers are from" in text


def test_the_command_says_what_to_install(tmp_path: Path) -> None:
    look = "import sys; sys.modules['triton'] = None; from probe.cli import main; sys.exit(main(['kernels']))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "triton" in done.stderr and "install the `kernels` extra" in done.stderr
    assert done.stderr.count("\n") == 1
