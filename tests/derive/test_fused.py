"""What runs in the place of a recurrence's PyTorch code is told from it, and what it hides is refused in the words that
the page has. The kernels are planted: their packages need a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.mamba import modeling_mamba
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.qwen3_next import modeling_qwen3_next

from probe.checkpoints import factory, load, targets
from probe.derive.declare import Declared
from probe.derive.draft import draft
from probe.derive.kernels import stand_in
from probe.experiments.recurrence.recurrence_code import choice, chosen, recurrence_facts
from probe.measure.run import Run, measure
from probe.schema import Fact
from probe.standard import StandardizedTransformer

KERNELS = {
    "mamba": (modeling_mamba.mamba_selective_scan, "mamba_ssm", "selective_scan_fn"),
    "mamba2": (modeling_mamba2.mamba2_chunk_scan, "mamba_ssm", "mamba_chunk_scan_combined"),
    "qwen3_next": (modeling_qwen3_next.torch_chunk_gated_delta_rule, "fla", "chunk_gated_delta_rule"),
}
"""The function that runs the recurrence, and what transformers runs in its place where it can."""

PACKAGE = """
def selective_scan_fn(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, **other):
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    plain = mamba_selective_scan.__wrapped__
    given = {"D": D, "z": z, "delta_bias": delta_bias, "delta_softplus": delta_softplus}
    return plain(u, delta, A, B, C, **given, **other)
"""


@contextmanager
def planted(function: Any, factor: float = 1.0) -> Iterator[None]:
    """A kernel of another package that gives ``factor`` times what the PyTorch code gives."""
    code = choice(function)["torch_function"].cell_contents

    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = code(*args, **kwargs)
        return (found[0] * factor, *found[1:]) if isinstance(found, tuple) else found * factor

    kernel.__module__ = "mamba_ssm"
    with chosen(function, implementation=kernel, is_new_implementation=True):
        yield


def mixer(family: str) -> dict[str, Declared]:
    module = factory.build_default(family, "tiny")
    return draft(module, factory.default_inputs(module)).blocks[0].hosts[1].values


def run_of(family: str) -> Run:
    return measure(StandardizedTransformer(load(next(t for t in targets(family) if t.kind == "tiny"), attn="eager")))


def facts(run: Run) -> dict[str, Fact]:
    run.__dict__.pop("_extra", None)
    return {fact.name: fact for fact in recurrence_facts(run)}


@pytest.mark.parametrize("family", KERNELS)
def test_what_may_run_in_a_functions_place_is_read_off_transformers_own_choice(family: str) -> None:
    function, package, name = KERNELS[family]
    found = stand_in(function)
    assert found is not None and (found.package, found.function, found.runs) == (package, name, False)
    with planted(function):
        assert (again := stand_in(function)) is not None and again.runs
    assert stand_in(function) == found and stand_in(torch.softmax) is None


@pytest.mark.parametrize("family", KERNELS)
def test_what_a_kernel_hides_is_refused_in_the_words_of_the_row(family: str) -> None:
    usual = mixer(family)
    inside = {name: value.reason for name, value in usual.items() if value.at and value.reason}
    assert "state_out" in inside and all("needs the PyTorch code of" in (said or "") for said in inside.values())
    codes = {getattr(said, "code", None) for said in inside.values()}
    assert codes == {KERNELS[family][0].__name__}
    assert usual["attention_premix"].reason is None
    with planted(KERNELS[family][0]):
        fused = mixer(family)
    hidden = {name: fused[name].reason for name in inside if name in fused and fused[name].at is None}
    assert hidden == {name: inside[name] for name in hidden}
    assert {"state_in", "state_out"} <= hidden.keys() and hidden.keys() >= inside.keys() & {"token_states"}
    assert all(fused[name].reason is None for name in fused if fused[name].at)


def test_how_far_a_kernels_numbers_are_apart_is_measured_where_it_runs() -> None:
    function, package, name = KERNELS["mamba"]
    run = run_of("mamba")
    plain = facts(run)["code_of_mamba_selective_scan"]
    assert plain.value == 0 and f"`{package}`" in plain.statement and f"`{name}`" in plain.statement
    assert plain.statement.endswith("instead, from import on.")
    assert plain.measured == {"package": package, "function": name}
    for factor, far in ((1.0, "by at most 0."), (1.01, "by at most 0.0")):
        with planted(function, factor):
            fused = facts(run)["code_of_mamba_selective_scan"]
        assert fused.value == 1 and f"`{name}` of `{package}` ran" in fused.statement and far in fused.statement
        assert ("at most 0." == fused.statement[-10:]) == (factor == 1.0)


@pytest.mark.parametrize("family", ["mamba", "mamba2", "rwkv", "recurrent_gemma"])
def test_a_cache_holds_the_states_that_one_forward_passes(family: str) -> None:
    found = facts(run_of(family))["states_by_steps"]
    name = "state_out" if family == "mamba2" else "token_states"
    assert found.value < 1e-4 and f"is `{name}`" in found.statement
    assert found.measured["value"] == name


def test_a_step_that_changes_the_state_otherwise_is_told() -> None:
    update = modeling_mamba.mamba_selective_state_update
    code = choice(update)["torch_function"].cell_contents

    def other(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return code(state.mul_(1.1), *args, **kwargs)

    run = run_of("mamba")
    taken = choice(update)["applicable_params"].cell_contents
    with chosen(update, implementation=other, applicable_params=taken):
        found = facts(run)["states_by_steps"]
    assert found.value > 1e-2 and "is not `token_states`" in found.statement


def test_the_command_refuses_states_where_the_kernels_package_is_installed(tmp_path: Path) -> None:
    (tmp_path / "mamba_ssm.py").write_text(PACKAGE)
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(tmp_path), str(root)])
    done = subprocess.run(
        [sys.executable, "-m", "probe", "read", "mamba", "token_states"],
        capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert (mixer("mamba")["token_states"].reason or "?") in done.stderr
