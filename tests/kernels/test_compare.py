"""A package's function beside PyTorch code, with planted ones of a known difference; and where it is looked for."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers.integrations import hub_kernels
from transformers.models.mamba import modeling_mamba
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.qwen3_next import modeling_qwen3_next

from probe.experiments.recurrence.recurrence_code import choice, chosen
from probe.kernels import compiled, measure, results
from probe.kernels.fetch import Fetched, fetch
from probe.kernels.fetch import _behind as module_behind
from probe.schema.kernels import Comparison
from tests.conftest import ROOT

CODE = {
    "mamba_chunk_scan_combined": modeling_mamba2.mamba2_chunk_scan,
    "selective_state_update": modeling_mamba2.mamba2_selective_state_update,
    "selective_scan_fn": modeling_mamba.mamba_selective_scan,
    "chunk_gated_delta_rule": modeling_qwen3_next.torch_chunk_gated_delta_rule,
    "fused_recurrent_gated_delta_rule": modeling_qwen3_next.torch_recurrent_gated_delta_rule,
}
"""PyTorch code that stands in place of a package's function here."""

Change = Callable[[tuple[Any, ...]], Any]


def planted(change: Change) -> measure.Fetch:
    """A package whose functions are the PyTorch code, and then change what they are given and give."""

    def look(package: str, name: str) -> Fetched:
        if name not in CODE:
            return Fetched(reason="none was planted")
        plain = choice(CODE[name])["torch_function"].cell_contents

        def kernel(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            return change((args[0], *(result if isinstance(result, tuple) else (result,))))

        kernel.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
        return Fetched(kernel)

    return look


def referenced(change: Change, function: Fetched | None = None) -> measure.Fetch:
    """A package that has `function`, or none, and a PyTorch version of it that is planted as :func:`planted` says."""
    look = planted(change)

    def fetched(package: str, name: str) -> Fetched:
        found = look(package, name)
        if found.function is not None:
            found.function.__name__ = f"{name}_ref"
        return Fetched(function, None if function else "it is compiled", reference=found.function)

    return fetched


def same(found: tuple[Any, ...]) -> Any:
    return found[1] if len(found) == 2 else found[1:]


def off(found: tuple[Any, ...]) -> Any:
    return (found[1] + 0.45, *found[2:]) if len(found) > 2 else found[1] + 0.45


def broken(hidden_states: torch.Tensor, *_: Any, **__: Any) -> None:
    hidden_states.fill_(float("nan"))
    raise ZeroDivisionError("planted")


def compared(family: str, look: measure.Fetch) -> dict[str, Comparison]:
    target = next(target for target in measure.twins(family) if target.id == "tiny")
    return {each.function: each for each in measure.twin(target, fetch=look)}


def apart(found: Comparison) -> dict[str, float]:
    assert found.reason is None, found.reason
    return {difference.of: difference.apart for difference in found.differences}


@pytest.mark.parametrize(
    ("family", "functions"),
    [
        ("mamba2", {"mamba2_chunk_scan": "prompt"}),
        ("qwen3_next", {"torch_chunk_gated_delta_rule": "prompt", "torch_recurrent_gated_delta_rule": "step"}),
    ],
)
def test_the_same_code_is_not_apart_and_other_numbers_are_by_as_much_as_they_differ(
    family: str, functions: dict[str, str]
) -> None:
    right = compared(family, planted(same))
    wrong = compared(family, planted(off))
    for name, during in functions.items():
        assert apart(right[name]) == {"output": 0, "state": 0}
        assert apart(wrong[name]) == {"output": 0.5, "state": 0}
        assert (right[name].during, right[name].dtype) == (during, "float32")
        blocks = 2 if family == "qwen3_next" else 3
        assert right[name].calls == blocks and all(each.largest > 0 for each in right[name].differences)


def test_a_state_that_is_changed_in_place_is_compared_and_the_twins_own_is_left_alone() -> None:
    def other(found: tuple[Any, ...]) -> Any:
        found[0].add_(1.95)
        return same(found)

    function = "mamba2_selective_state_update"
    right, wrong = compared("mamba2", planted(same)), compared("mamba2", planted(other))
    assert apart(right[function]) == {"output": 0, "state": 0}
    assert apart(wrong[function]) == {"output": 0, "state": 2.0} and wrong[function].during == "step"
    assert right[function].differences[1].largest == wrong[function].differences[1].largest
    changed = apart(wrong["mamba2_chunk_scan"])  # an argument that the PyTorch code leaves as it is
    assert changed == {"output": 0, "state": 0, "hidden_states": 2.0}


def test_a_kernel_is_given_the_strides_that_the_mixer_passes() -> None:
    strides: list[tuple[int, ...]] = []

    def update(state: torch.Tensor, hidden_states: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, *_: Any, **__: Any):  # type: ignore[no-untyped-def]
        strides.append(A.stride())
        raise ZeroDivisionError("planted")

    name = "selective_state_update"
    found = compared("mamba2", lambda package, of: Fetched(update) if of == name else Fetched(reason="none"))
    assert strides == [(1, 0, 0)]  # after an error the function is not called again
    said = found["mamba2_selective_state_update"]
    assert said.reason == "the call stopped with an error (ZeroDivisionError: planted)" and said.calls == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: (found[1][:, 1:], found[2]), "output has another shape"),
        (lambda found: (found[1] * float("nan"), found[2]), "output has numbers that are not finite"),
        (lambda found: found[1], "returns 1 results in place of 2"),
    ],
)
def test_results_that_cannot_be_compared_are_told(change: Change, said: str) -> None:
    found = compared("mamba2", planted(change))["mamba2_chunk_scan"]
    assert said in (found.reason or "") and not found.differences


@pytest.mark.parametrize(
    ("function", "reason"),
    [(None, "it is compiled"), (Fetched(broken), "the call stopped with an error (ZeroDivisionError: planted)")],
)
def test_where_the_kernel_cannot_run_the_packages_own_pytorch_version_is_called_and_told_apart(
    function: Fetched | None, reason: str
) -> None:
    kernel = function.function if function else None
    right, wrong = (compared("mamba", referenced(change, kernel)) for change in (same, off))
    for found, by in ((right["mamba_selective_scan"], 0), (wrong["mamba_selective_scan"], 0.5)):
        assert (found.reference, found.reason, found.calls) == ("selective_scan_fn_ref", reason, 3)
        assert {difference.of: difference.apart for difference in found.differences} == {"output": by, "state": 0}
        assert found.ran == (None if function is None else "interpreter")
    assert right["causal_conv1d_fn"].reference is None and not right["causal_conv1d_fn"].differences


def test_a_kernel_that_refuses_the_twins_strides_is_called_on_the_same_numbers_with_others() -> None:
    given: list[tuple[int, ...]] = []

    def look(package: str, name: str) -> Fetched:
        found = planted(off)(package, name)

        def picky(hidden_states: torch.Tensor, dt: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            given.append(dt.stride())
            if any(stride % 8 for stride in dt.stride() if stride != 1):
                raise RuntimeError("it wants a stride that is a multiple of 8")
            return found.function(hidden_states, dt, *args, **kwargs)

        picky.__signature__ = inspect.signature(found.function) if found.function else None  # type: ignore[attr-defined]
        return Fetched(picky) if found.function else found

    name = "mamba2_chunk_scan"
    found = compared("mamba2", look)[name]
    assert apart(found) == {"output": 0.5, "state": 0} and found.padded and found.calls == 3
    assert [stride % 8 for stride in given[0]] == [4, 4, 1] and [stride % 8 for stride in given[1]] == [0, 0, 1]
    assert not compared("mamba2", planted(same))[name].padded
    refused = compared("mamba2", lambda *_: Fetched(refusing))[name]
    assert refused.reason == "the call stopped with an error (RuntimeError: no stride)" and not refused.padded


def refusing(*_: Any, **__: Any) -> None:
    raise RuntimeError("no stride")


def test_what_ran_is_told_and_a_call_that_ran_no_kernel_is_no_comparison() -> None:
    launched = [0]

    def launching(found: tuple[Any, ...]) -> Any:
        launched[0] += 1
        return same(found)

    def look(change: Change) -> measure.Fetch:
        return lambda package, name: replace(planted(change)(package, name), launches=lambda: launched[0])

    name = "mamba2_chunk_scan"
    assert compared("mamba2", look(launching))[name].ran == "compiled"
    said = compared("mamba2", look(same))[name]
    assert said.reason == "the call stopped with an error (ValueError: it ran no kernel)" and said.ran == "compiled"
    assert compared("mamba2", planted(same))[name].ran == "interpreter"


def test_where_the_kernel_ran_its_pytorch_version_is_not_called() -> None:
    called = []

    def reference(*_: Any, **__: Any) -> None:
        called.append(1)

    def look(package: str, name: str) -> Fetched:
        found = planted(off)(package, name)
        return Fetched(found.function, reference=reference) if found.function else found

    found = compared("mamba2", look)["mamba2_chunk_scan"]
    assert found.reference is None and apart(found) == {"output": 0.5, "state": 0} and not called


def test_a_pytorch_version_that_stops_is_told_with_what_stands_against_the_kernel() -> None:
    found = compared("mamba2", lambda package, name: Fetched(reason="it is compiled", reference=broken))
    said = found["mamba2_chunk_scan"]
    assert not said.differences and said.reference is None and not said.calls
    assert said.reason == (
        "it is compiled; of `broken`, the package's own PyTorch version, the call stopped with an error "
        "(ZeroDivisionError: planted)"
    )


def test_the_pytorch_code_runs_in_full_float32_where_transformers_chose_the_kernel() -> None:
    """As on a CUDA device: the package was there when transformers was imported, and cuDNN would round to TF32."""
    function = modeling_mamba2.mamba2_chunk_scan
    rounding = []

    def noted(found: tuple[Any, ...]) -> Any:
        rounding.append(torch.backends.cudnn.allow_tf32)
        return off(found)

    assert torch.backends.cudnn.allow_tf32
    chose = {"implementation": broken, "applicable_params": ("hidden_states",), "is_new_implementation": True}
    with chosen(function, **chose):
        found = compared("mamba2", planted(noted))["mamba2_chunk_scan"]
        assert choice(function)["implementation"].cell_contents is broken
    assert apart(found) == {"output": 0.5, "state": 0} and {*rounding} == {False}
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("family", ["mamba2", "qwen3_next"])
def test_the_committed_numbers_are_of_the_calls_that_the_twins_make(family: str) -> None:
    kept = results.committed()
    assert kept is not None
    calls = {name: each for name, each in compared(family, planted(same)).items() if each.reason is None}
    committed = {each.function: each for each in kept.families[family]["tiny"] if each.function in calls}
    assert calls.keys() == committed.keys()
    for name, each in committed.items():
        ours = calls[name]
        assert (each.during, each.calls, each.dtype) == (ours.during, ours.calls, ours.dtype)
        largest = {difference.of: difference.largest for difference in ours.differences}
        assert {d.of: d.largest for d in each.differences} == pytest.approx(largest, rel=0.1)  # a GPU rounds otherwise


def test_a_twin_whose_forward_stops_costs_no_other_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_another_device(*_: Any) -> None:
        raise RuntimeError("planted: on two devices")

    monkeypatch.setattr(measure, "_prompt_and_step", on_another_device)
    reasons = {each.reason for each in compared("mamba2", planted(same)).values()}
    assert reasons == {"the twin's own forward stopped with an error (RuntimeError: planted: on two devices)"}


def test_what_is_not_called_or_not_there_has_a_reason() -> None:
    found = compared("mamba", planted(same))
    assert "neither a prompt nor a step" in (found["mamba_inner_fn"].reason or "") and not found["mamba_inner_fn"].calls
    assert found["causal_conv1d_fn"].reason == "none was planted" and found["causal_conv1d_fn"].during == "prompt"
    assert apart(found["mamba_selective_scan"])["output"] == 0


SCAN = """
import planted_cuda
from planted_kernels.ops.step import step
def inner_scan_fn(x, y, z=None, w=None): planted_cuda.run()
def inner_scan_ref(x, z=None, y=None): return x, y, z, step
"""
"""A function that runs a compiled part, and a PyTorch version of it that lacks a parameter and has others' order."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `planted_kernels` whose opening code needs a compiled part, with `step` in a module of its own."""
    folder = tmp_path / "planted_kernels"
    (folder / "ops").mkdir(parents=True)
    (folder / "__init__.py").write_text("import planted_cuda\ndef scan(x): ...\n")
    (folder / "ops" / "__init__.py").write_text("")
    (folder / "ops" / "step.py").write_text("from planted_kernels.ops import __name__ as above\ndef step(x): ...\n")
    (folder / "ops" / "scan.py").write_text(SCAN)
    paths = {"step": "ops.step", "inner_scan_fn": "ops.scan", "lost": "ops.step"}
    for name, path in paths.items():
        monkeypatch.setitem(hub_kernels._KERNELS_INTERNAL_PATH_MAPPINGS, name, path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module_behind.cache_clear()
    yield folder
    for name in [name for name in sys.modules if name.startswith("planted_kernels")]:
        del sys.modules[name]


def test_a_function_is_found_behind_opening_code_that_fails(package: Path) -> None:
    found = fetch("planted_kernels", "step")
    assert found.reason is None and found.function is not None and found.function.__name__ == "step"
    assert "planted_kernels" not in sys.modules  # transformers still finds that it cannot be imported
    assert fetch("planted_kernels", "step").function is found.function


def test_a_pytorch_version_is_found_behind_a_compiled_part_that_is_missing(package: Path) -> None:
    before = fetch("planted_kernels", "step").function
    imported = {name for name in sys.modules if name.startswith("planted")}
    found = fetch("planted_kernels", "inner_scan_fn")
    assert found.function is None and found.reference is not None and found.reference.__name__ == "inner_scan_ref"
    assert found.reference(1, 2, z=3)[:3] == (1, 2, 3)  # as the function is called
    with pytest.raises(TypeError, match="w"):
        found.reference(1, 2, w=3)  # which the version does not know
    assert {name for name in sys.modules if name.startswith("planted")} == imported
    assert fetch("planted_kernels", "step").function is before
    assert fetch("planted_kernels", "step").reference is None and fetch("planted_kernels", "scan").reference is None


def test_a_compiled_part_that_is_missing_is_made_and_the_packages_function_runs_it(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModuleType("planted_cuda")
    ran: list[int] = []
    made.run = lambda: ran.append(1)  # type: ignore[attr-defined]
    monkeypatch.setattr("probe.kernels.fetch.part", lambda _: compiled.Part(made, lambda: len(ran)))
    assert fetch("planted_kernels", "step").launches is None  # which needs no such part
    before = {name for name in sys.modules if name.startswith("planted")}
    found = fetch("planted_kernels", "inner_scan_fn")
    assert found.function is not None and found.reason is None and found.launches is not None
    assert found.reference is not None and found.launches() == 0
    found.function(1, 2)
    assert found.launches() == 1
    assert {name for name in sys.modules if name.startswith("planted")} == before


@pytest.mark.parametrize(
    ("package_name", "name", "said"),
    [
        (
            "planted_kernels",
            "scan",
            "`planted_cuda` is needed, which is compiled for CUDA devices and was not there; its source was not there",
        ),
        ("planted_kernels", "inner_scan_fn", "`planted_cuda` is needed, which is compiled for CUDA devices"),
        ("planted_kernels", "lost", "the package `planted_kernels` has no such function"),
        ("no_such_kernels", "step", "the package `no_such_kernels` was not installed"),
    ],
)
def test_why_a_function_is_not_there(package: Path, package_name: str, name: str, said: str) -> None:
    found = fetch(package_name, name)
    assert found.function is None and said in (found.reason or "")


KERNEL = """
import sys
from probe.kernels import interpreter
interpreter.ask()
interpreter.prepare()
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"STEP": 1}), triton.Config({"STEP": 2})], key=["N"])
@triton.jit
def total(x, out, N, STEP: tl.constexpr):
    found = 0.0
    for i in range(N):
        at = i.to(tl.int64)  # a compiled kernel's counter is a tensor
        found += tl.load(x + at) * STEP
    tl.store(out, found)

x, out = torch.arange(5.0), torch.zeros(1)
with torch.cuda.device(x.device.index):
    total[(1,)](x, out, 5)
print(out.item())
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_kernel_runs_in_the_interpreter_on_its_first_configuration(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)  # the interpreter reads a kernel's source
    done = subprocess.run(
        [sys.executable, str(tmp_path / "kernel.py")], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10.0"]
