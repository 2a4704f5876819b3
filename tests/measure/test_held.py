"""What a record says for someone with a hook of plain PyTorch gives the value that the run read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.measure import values
from probe.measure.held import held_shapes, view
from probe.measure.run import Run, measure
from probe.measure.values import Measured
from probe.record.findings import twin
from probe.schema import HfPath, Value
from probe.standard.trace import Key

TWINS = [
    ("llama", "tiny-mha"),
    ("gemma3_text", "tiny-vision"),
    ("gemma4_text", "tiny"),
    ("gemma4_text", "tiny-moe"),
    ("llama4_text", "tiny-interleaved"),
]


def _hook(hf: HfPath, got: list[Any]) -> Callable[..., None]:
    """A hook that keeps what the record points it at."""

    def keep(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
        if hf.side == "out":
            found = output if hf.element is None else output[hf.element]
            found = found[0] if isinstance(found, tuple) else found
        elif hf.element is None:
            found = args[0] if args else next(iter(kwargs.values()))
        else:
            found = (kwargs if isinstance(hf.element, str) else args)[hf.element]
        got.append((found.detach().clone() if isinstance(found, torch.Tensor) else found, kwargs))

    return keep


def _from_hook(run: Run, value: Value, block: int | None) -> Any:
    """The value on a block, from a hook of plain PyTorch and the record's own words."""
    assert value.hf is not None
    module = run.model._module.get_submodule(value.hf.path.replace("{i}", str(block)))
    got: list[Any] = []
    if value.hf.side == "out":
        handle = module.register_forward_hook(_hook(value.hf, got), with_kwargs=True)
    else:
        handle = module.register_forward_pre_hook(_hook(value.hf, got), with_kwargs=True)
    with handle, torch.no_grad():
        run.model._module(**run.inputs)
    ((tensor, kwargs),) = got
    if value.hf.held is None:
        return tensor
    if value.hf.held.shape is not None:
        assert list(tensor.shape) == value.hf.held.shape
    assert value.hf.held.view is not None
    batch, seq = run.inputs["input_ids"].shape
    names = {"tensor": tensor, "kwargs": kwargs, "config": run.model._module.config, "batch": batch, "seq": seq}
    sizes = dict(zip(value.dims, value.shape or [], strict=False))
    return eval(value.hf.held.view, {}, sizes | names)


@pytest.mark.parametrize(("family", "name", "which"), [*((*twin, 0) for twin in TWINS), ("longcat_flash", "tiny", -1)])
def test_a_plain_hook_gets_the_value(family: str, name: str, which: int) -> None:
    """On the first block; on the last one of a block whose own parts are numbered."""
    model = twin(family, name)
    run = measure(model)
    measured = Measured({}, run.readings, held=held_shapes(run))
    rows = [row for vision in (False, True) for row in values.rows(model, measured, vision=vision)]
    hooked = [row for row in rows if row.hf is not None and row.hf.side != "op"]
    assert len(hooked) > 15
    for row in hooked:
        block = row.blocks[which] if row.blocks else None
        read = run.readings[Key(row.host, block, row.name)]
        found = _from_hook(run, row, block)
        assert found == read if isinstance(read, list) else torch.equal(found, read), f"{row.host}.{row.name}"


@pytest.mark.parametrize(
    ("there", "shape", "expression"),
    [
        ((35, 4), (1, 35, 4), "tensor.unflatten(0, (a, b))"),
        ((70, 4), (2, 35, 4), "tensor.unflatten(0, (a, b))"),
        ((1, 35, 48), (1, 35, 6, 8), "tensor.unflatten(2, (c, d))"),
        ((2, 9, 48), (18, 48), "tensor.flatten(0, 1)"),
        ((1, 35, 8), (1, 35, 1, 8), None),  # one head: which axes are folded cannot be told
        ((35, 1, 4), (1, 35, 4), None),  # another order of the axes is no folding
        ((1, 48), (1, 35, 48), None),
    ],
)
def test_a_view_is_named_where_one_and_only_one_fits(there: Any, shape: Any, expression: str | None) -> None:
    assert view(there, shape, "abcd") == expression
