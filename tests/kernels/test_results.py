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
from tests.render.knowing import committed, plain

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
        ran = each.reason is None or each.reference is not None
        assert ran == bool(each.differences) == bool(each.calls)
        assert each.ran or each.reason
        assert (each.ran == "cuda") <= (FOUND.device is not None)
        stopped = "stopped with an error" in (each.reason or "")
        assert FOUND.device or not stopped or "RuntimeError: causal_conv1d only supports width" in each.reason


def test_what_ran_computed_what_the_pytorch_code_does() -> None:
    """Each to within float32's rounding of many sums, or a GPU's TF32: arguments taken otherwise would be far off."""
    assert FOUND is not None
    ran = [(each, d) for f in FOUND.families.values() for t in f.values() for each in t for d in each.differences]
    assert any(each.reference is None for each, _ in ran)
    for each, difference in ran:
        most = 1e-2 if each.ran == "cuda" and each.reference is None else kernels.ROUNDING
        assert difference.apart <= most * difference.largest, each


def test_without_a_device_each_function_that_was_called_ran_from_its_own_code() -> None:
    """Triton's in its interpreter, CUDA's from source; a PyTorch version stood in only where the kernel refused."""
    assert FOUND is not None
    called = [e for f in FOUND.families.values() for t in f.values() for e in t if e.during]
    ways = {(each.stand_in, each.ran) for each in called if each.package != "fla"}
    assert FOUND.device or ways == {
        ("causal_conv1d_fn", "compiled"), ("causal_conv1d_update", "compiled"), ("selective_scan_fn", "compiled"),
        ("mamba_chunk_scan_combined", "interpreter"), ("selective_state_update", "interpreter"),
    }  # fmt: skip


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
    data = {"provenance": PROVENANCE, "packages": {"mamba_ssm": "2.3", "triton": "3.9"}, **other}
    return KernelResults(**data, families={"mamba2": {"tiny": list(compared)}})


def numbers(names: dict[str, str], during: Any, *apart: float, ran: Any = "interpreter") -> Comparison:
    found = [Difference(of=of, apart=a, largest=30.0) for of, a in zip(("output", "state"), apart, strict=True)]
    return Comparison(**names, during=during, calls=3, dtype="float32", differences=found, ran=ran)


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
    on_cpu = "ran on a CPU, not on a GPU: mamba_chunk_scan_combined"
    both = f"{on_cpu} and selective_state_update in Triton's interpreter (mamba_ssm 2.3, triton 3.9). This executes"
    assert both in said
    compiled = "selective_state_update from CUDA source, compiled with a stand-in for CUDA's runtime (mamba_ssm 2.3)."
    said = told(made(numbers(SCAN, "prompt", 4e-6, 0.0), numbers(STEP, "step", 0.5, 0.25, ran="compiled")))
    assert f"{on_cpu} in Triton's interpreter (mamba_ssm 2.3, triton 3.9) and {compiled}" in said
    on_device = told(made(numbers(SCAN, "prompt", 4e-6, 0.0, ran="cuda"), device="Planted 100"))
    assert "ran on Planted 100 (mamba_ssm 2.3, triton 3.9)" in on_device and "interpreter" not in on_device


def test_a_page_tells_of_strides_that_were_not_the_twins() -> None:
    step = numbers(STEP, "step", 0.5, 0.25)
    text = "the same numbers in rows padded to multiples of 8."
    assert text in told(made(step.model_copy(update={"padded": True}))) and text not in told(made(step))


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


def test_a_page_tells_what_a_pytorch_version_shows_and_what_it_leaves_open() -> None:
    reason = "`planted_cuda` is needed"
    scan = numbers(SCAN, "prompt", 3e-5, 0.0).model_copy(
        update={"reason": reason, "reference": "scan_ref", "ran": None}
    )
    step = numbers(STEP, "step", 0.0, 0.0).model_copy(update={"reason": reason, "reference": "update_ref", "ran": None})
    said = told(made(scan, step))
    assert (
        "was not measured: planted_cuda is needed. The package (mamba_ssm 2.3) also has a PyTorch version of "
        "mamba_chunk_scan_combined, scan_ref. Called on the same float32 arguments of a prompt, it gives the output to "
        "within 3e-5 (numbers up to 30) and the state exactly"
    ) in said
    assert "a PyTorch version of selective_state_update, update_ref. Called on" in said
    assert said.count("does, to within rounding. Whether a kernel that was not run keeps to") == 1
    assert "interpreter" not in said  # no kernel ran
    refused = told(made(scan.model_copy(update={"ran": "compiled"})))
    assert "does, to within rounding." in refused and "is open" not in refused
    far = numbers(SCAN, "prompt", 0.5, 0.0).model_copy(update={"reason": reason, "reference": "scan_ref", "ran": None})
    said = told(made(far, step))
    assert "more than rounding lies between the code of transformers and scan_ref. Whether" in said
    assert "to within rounding" not in said


def test_the_pages_have_the_committed_numbers() -> None:
    for family in ("mamba", "mamba2", "lfm2"):
        text = plain(committed(family, "tiny"), "know-loading")
        for each in FOUND.families[family]["tiny"]:
            assert each.stand_in in text and (each.reference or "") in text
            assert (each.reason or "").replace("`", "") in text
    on = "The kernels that were measured ran"
    assert on in plain(committed("mamba2", "tiny"), "know-loading")
    assert on not in plain(committed("gemma3_text", "tiny"), "know-loading")


def test_the_command_says_what_to_install(tmp_path: Path) -> None:
    look = "import sys; sys.modules['triton'] = None; from probe.cli import main; sys.exit(main(['kernels']))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "triton" in done.stderr and "`scripts/kernels` runs" in done.stderr
    assert done.stderr.count("\n") == 1
