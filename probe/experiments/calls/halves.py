"""The stream's dtype in a half-precision load, and what else a call with bfloat16 weights gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from ...instruments.extra import FEW, decoder, once, token_ids
from ...instruments.reweighted import called_with
from ...instruments.tap import removed
from ...measure.run import Run
from ...standard.trace import Key
from ...wiring.operands import first_given
from ..answers import per_block
from ..base import Quirk, Verdict, some

Found = TypeVar("Found")


@dataclass(frozen=True)
class Half:
    """What a call with bfloat16 weights gave.

    Attributes:
        modules: the dtypes of the floating tensors that each module returned, by native path, in their order; of a
            module that is called several times, the widest of each.
        logits: their dtype; None where the call gave none.
        entering: what entered the first block, ``[1, seq, width]``, and the token ids that it came from.
    """

    modules: dict[str, list[torch.dtype]]
    logits: torch.dtype | None
    entering: torch.Tensor | None
    ids: torch.Tensor


def fp32_residual(run: Run) -> Verdict:
    """The dtype of what leaves each block, in a bfloat16 load: float32 makes the answer yes.

    A model in float32 is called with its weights cast, which changes none of them; one in half precision was read.
    """
    try:
        dtypes = _read(run) if run.dtype is not torch.float32 else _tried(run, decoder(run), partial(_blocks, run))
    except RuntimeError as error:
        why = f"The model does not run with bfloat16 weights here: {str(error).splitlines()[0]}."
        return Verdict("inconclusive", why=why)
    load = "bfloat16" if run.dtype is torch.float32 else str(run.dtype).removeprefix("torch.")
    return per_block([None if dtype is None else dtype is torch.float32 for dtype in dtypes], {"load": load})


def _read(run: Run) -> list[torch.dtype | None]:
    outputs = [run.readings.get(Key(run.text.label, index, "layer_output")) for index in range(len(run.text))]
    return [None if output is None else output.dtype for output in outputs]


def _tried(run: Run, module: torch.nn.Module, call: Callable[[dict[str, torch.Tensor], bool], Found]) -> Found:
    """A call with cast weights. Where the model cannot be called so, its other buffers are cast too, for some are made
    in the load's dtype; then it is called with a cache, which takes another way through some mixers.

    Raises:
        RuntimeError: none of these calls runs.
    """
    kept = tuple(getattr(run.model._module, "_keep_in_fp32_modules_strict", None) or ())
    cast = {
        name: tensor.to(torch.bfloat16)
        for name, tensor in _saved(module)
        if tensor.is_floating_point() and not any(part in name for part in kept)
    }
    buffers = {name: buffer.to(torch.bfloat16) for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    for given, use_cache in ((cast, False), ({**cast, **buffers}, False)):
        try:
            return call(given, use_cache)
        except RuntimeError:
            continue
    return call(cast, True)


def _blocks(run: Run, cast: dict[str, torch.Tensor], use_cache: bool) -> list[torch.dtype | None]:
    """The dtype of the stream leaving each block, in a call without the head."""
    found: dict[str, list[torch.dtype]] = {}
    with ExitStack() as stack, torch.no_grad():
        for index, envoy in enumerate(run.text.envoys):
            stack.enter_context(removed(envoy._module.register_forward_hook(_noting(found, str(index)))))
        if _has_mixtures(run):
            stack.enter_context(plain_experts(run.model._module))
        called_with(decoder(run), cast, **_inputs(run, use_cache))
    return [next(iter(found.get(str(index), ())), None) for index in range(len(run.text))]


def _has_mixtures(run: Run) -> bool:
    return any(term.kind == "moe" for anatomy in run.text.anatomy for term in anatomy.terms)


def _inputs(run: Run, use_cache: bool) -> dict[str, Any]:
    ids = token_ids(run, FEW)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": use_cache}


@once
def half(run: Run) -> Half:
    """A call of the whole model with cast weights, watched module by module.

    Raises:
        RuntimeError: it does not run with them.
    """
    return _tried(run, run.model._module, partial(_called, run))


def _called(run: Run, cast: dict[str, torch.Tensor], use_cache: bool) -> Half:
    module = run.model._module
    modules: dict[str, list[torch.dtype]] = {}
    entered: list[torch.Tensor] = []
    paths = {id(inner): path for path, inner in module.named_modules()}
    blocks = [paths[id(envoy._module)] for envoy in run.text.envoys]
    call = _inputs(run, use_cache)
    with ExitStack() as stack, torch.no_grad():
        for path, inner in module.named_modules():
            stack.enter_context(removed(inner.register_forward_hook(_noting(modules, path))))
        first = run.text.envoys[0]._module
        stack.enter_context(removed(first.register_forward_pre_hook(_keeping(entered), with_kwargs=True)))
        if _has_mixtures(run):
            stack.enter_context(plain_experts(run.model._module))
        logits = None
        try:
            logits = getattr(called_with(module, cast, **call), "logits", None)
        except RuntimeError:
            if not {*blocks} <= modules.keys():  # with all blocks behind it, the head alone refuses the stream's dtype
                raise
    return Half(
        modules,
        logits.dtype if isinstance(logits, torch.Tensor) else None,
        entered[0] if entered else None,
        call["input_ids"],
    )


def _noting(found: dict[str, list[torch.dtype]], path: str) -> Callable[..., None]:
    def note(_: torch.nn.Module, __: Any, output: Any) -> None:
        given = output if isinstance(output, tuple) else (output,)
        now = [t.dtype for t in given if isinstance(t, torch.Tensor) and t.is_floating_point()]
        before = found.get(path, now)
        found[path] = [*map(torch.promote_types, before, now), *before[len(now) :], *now[len(before) :]]

    return note


def _keeping(store: list[torch.Tensor]) -> Callable[..., None]:
    def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = first_given(args, kwargs)
        if given is not None and not store:
            store.append(given.detach().float().clone())

    return keep


def _saved(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters by each of their names, and the buffers that a checkpoint holds; a load casts those and leaves the
    others.
    """
    for prefix, inner in module.named_modules(remove_duplicate=False):
        for name, held in (*inner._parameters.items(), *inner._buffers.items()):
            if held is not None and name not in inner._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, held


@contextmanager
def plain_experts(model: Any) -> Iterator[None]:
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
