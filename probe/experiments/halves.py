"""The stream's dtype in a half-precision load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..measure.run import Run
from ..measure.trace import Key
from .answers import per_block
from .base import Quirk, Verdict, some
from .cache import FEW
from .extra import decoder, token_ids
from .reweighted import called_with
from .tap import removed


def fp32_residual(run: Run) -> Verdict:
    """The dtype of what leaves each block, in a bfloat16 load: float32 makes the answer yes.

    A model in float32 is called with its weights cast, which changes none of them; one in half precision was read.
    """
    try:
        dtypes = _read(run) if run.dtype is not torch.float32 else _cast(run)
    except RuntimeError as error:
        why = f"The model does not run with bfloat16 weights here: {str(error).splitlines()[0]}."
        return Verdict("inconclusive", why=why)
    load = "bfloat16" if run.dtype is torch.float32 else str(run.dtype).removeprefix("torch.")
    return per_block([None if dtype is None else dtype is torch.float32 for dtype in dtypes], {"load": load})


def _read(run: Run) -> list[torch.dtype | None]:
    outputs = [run.readings.get(Key(run.text.label, index, "layer_output")) for index in range(len(run.text))]
    return [None if output is None else output.dtype for output in outputs]


def _cast(run: Run) -> list[torch.dtype | None]:
    """The dtypes in a call with cast weights. Where the model cannot be called so, its other buffers are cast too, for
    some are made in the load's dtype; then it is called with a cache, which takes another way through some mixers.
    """
    module = decoder(run)
    kept = tuple(getattr(run.model._module, "_keep_in_fp32_modules_strict", None) or ())
    half = {
        name: tensor.to(torch.bfloat16)
        for name, tensor in _saved(module)
        if tensor.is_floating_point() and not any(part in name for part in kept)
    }
    buffers = {name: buffer.to(torch.bfloat16) for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    for cast, use_cache in ((half, False), ({**half, **buffers}, False)):
        try:
            return _called(run, module, cast, use_cache)
        except RuntimeError:
            continue
    return _called(run, module, half, True)


def _called(
    run: Run, module: torch.nn.Module, half: dict[str, torch.Tensor], use_cache: bool
) -> list[torch.dtype | None]:
    found: dict[int, torch.dtype] = {}
    ids = token_ids(run, FEW)
    call = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": use_cache}
    with ExitStack() as stack, torch.no_grad():
        for index, envoy in enumerate(run.text.envoys):
            stack.enter_context(removed(envoy._module.register_forward_hook(_noting(found, index))))
        if any(term.kind == "moe" for anatomy in run.text.anatomy for term in anatomy.terms):
            stack.enter_context(_plain_experts(run.model._module))
        called_with(module, half, **call)
    return [found.get(index) for index in range(len(run.text))]


def _noting(found: dict[int, torch.dtype], index: int) -> Callable[..., None]:
    def note(_: torch.nn.Module, __: Any, output: Any) -> None:
        found[index] = (output if isinstance(output, torch.Tensor) else output[0]).dtype

    return note


def _saved(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters by each of their names, and the buffers that a checkpoint holds; a load casts those and leaves the
    others.
    """
    yield from module.named_parameters(remove_duplicate=False)
    for prefix, inner in module.named_modules():
        for name, buffer in inner.named_buffers(recurse=False):
            if name not in inner._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


@contextmanager
def _plain_experts(model: Any) -> Iterator[None]:
    """Runs experts one by one: the grouped kernel refuses a twin's widths in bfloat16."""
    if not hasattr(model, "get_experts_implementation"):
        yield
        return
    before = model.get_experts_implementation()
    try:
        model.set_experts_implementation(dict.fromkeys(before, "eager"))
        yield
    finally:
        model.set_experts_implementation(before)


QUIRKS = (
    Quirk(
        "fp32-residual",
        "Float32 stream",
        "text",
        fp32_residual,
        lambda m, b, n: f"In a half-precision load the stream leaving {some(b or [], n)} stays float32.",
    ),
)
