"""A twin's weight layouts with a checkpoint's own sizes: each number of a layout is the size that it is on the twin.

The parameter's own shape, as the checkpoint was built, decides: a layout is taken over where exactly one reading of its
numbers gives that shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ...measure.shapes import block_sizes
from ...standard import StandardizedTransformer
from .layout import EXPERTS, Layout, Run
from .weights import Held

HEADS = ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim", "num_experts")
MOST = 4096
"""Most readings of one layout that are tried."""


def sized(
    held: Sequence[Held], twin: StandardizedTransformer, model: StandardizedTransformer, blocks: Sequence[int]
) -> list[Held]:
    """The twin's parameters on the checkpoint's blocks, with what its own shapes leave of their layouts."""
    paths = {id(parameter): path for path, parameter in model._module.named_parameters(remove_duplicate=False)}
    shapes = {path: tuple(model._module.get_parameter(path).shape) for path in paths.values()}
    known: dict[tuple[Any, ...], Held] = {}
    found = []
    for index, (block, envoy) in enumerate(zip(blocks, model.layers, strict=True)):
        own, theirs = _sizes(model, envoy), _sizes(twin, twin.layers[block])
        for each in held:
            if each.block != block:
                continue
            shape = shapes.get(each.path.replace("{i}", str(index)))
            if shape is None or len(shape) != len(each.shape):
                continue
            key = (each, shape, tuple(own.items()))
            if key not in known:
                known[key] = _own(each, shape, theirs, own)
            found.append(replace(known[key], block=index))
    return found


def _sizes(model: StandardizedTransformer, layer: Any) -> dict[str, int]:
    """The sizes of a block's heads, the numbers of the config that tell of heads, ranks and widths, and how many query
    heads share a key."""
    entries = model.text_config.to_dict()
    named = {
        name: value
        for name, value in entries.items()
        if type(value) is int and any(part in name for part in ("head", "dim", "rank"))
    }
    sizes = {**named, **{name: size for name, size in block_sizes(layer).items() if name in HEADS}}
    heads, shared = sizes.get("num_heads"), sizes.get("num_kv_heads")
    if heads and shared and heads % shared == 0:
        sizes["queries of a key"] = heads // shared
    return sizes


def _own(held: Held, shape: tuple[int, ...], theirs: Mapping[str, int], own: Mapping[str, int]) -> Held:
    if held.single and own.get("num_kv_heads", 1) == 1:
        return replace(held, shape=shape, why=f"On the twin: {held.why}")
    if held.layout is None or held.axis is None:
        whole = tuple((name, part) for name, part in held.parts if set(part) <= set("[:, ]"))
        return replace(held, shape=shape, parts=whole, why=f"On the twin: {held.why}")
    length = shape[held.axis]
    for names in (HEADS + ("queries of a key",), tuple(theirs)):
        fits = {
            made
            for made in _readings(held.layout, theirs, own, names)
            if made.total == length and _counted(held, made, own)
        }
        if len(fits) == 1:
            made = fits.pop()
            parts = tuple((name, made.subscript(name, held.axis)) for name in held.yields)
            return replace(
                held, shape=shape, layout=made, parts=parts, why=f"On the twin, and by its own sizes: {held.why}"
            )
        if len(fits) > 1:
            break
    if (beside := _side_by_side(held.layout, length, theirs, own)) is not None:
        parts = tuple((name, beside.subscript(name, held.axis)) for name in held.yields)
        why = f"On the twin, and by its own number of experts: {held.why}"
        return replace(held, shape=shape, layout=beside, parts=parts, why=why)
    what = "experts" if EXPERTS in held.yields else "heads"
    unknown = f"On the twin {what} lie on axis {held.axis}; this checkpoint's sizes do not tell in which order."
    return replace(held, shape=shape, layout=None, parts=(), why=unknown)


def _side_by_side(layout: Layout, length: int, theirs: Mapping[str, int], own: Mapping[str, int]) -> Layout | None:
    """Experts that fill an axis side by side: by the checkpoint's number of them each has an equal part of it."""
    number = own.get("num_experts", 0)
    alone = layout.groups == 1 and [run.name for run in layout.runs] == [EXPERTS]
    if not alone or number < 1 or length % number or layout.count(EXPERTS) != theirs.get("num_experts"):
        return None
    return Layout(1, (Run(EXPERTS, number, length // number),))


def _counted(held: Held, made: Layout, own: Mapping[str, int]) -> bool:
    """Whether there are as many query heads as the checkpoint has."""
    counts = {made.count(name) for name in held.yields if name in ("attention_queries", "attention_output")}
    return not counts or "num_heads" not in own or counts == {own["num_heads"]}


def _readings(
    layout: Layout, theirs: Mapping[str, int], own: Mapping[str, int], names: Sequence[str]
) -> Iterator[Layout]:
    """The layouts that come of putting the checkpoint's sizes in the place of the twin's that each number may be."""

    def meant(number: int, whole: bool = False) -> set[int]:
        found = {own[name] for name in names if theirs.get(name) == number and name in own}
        return found | {1} if number == 1 and not whole else found

    numbers = [layout.groups, *(n for run in layout.runs for n in (run.heads, run.width))]
    choices = [sorted(meant(number)) for number in numbers]
    size = 1
    for choice in choices:
        size *= len(choice)
    if not 0 < size <= MOST:
        return
    for groups, *rest in product(*choices):
        pairs = zip(layout.runs, rest[::2], rest[1::2], strict=True)
        yield Layout(groups, tuple(Run(run.name, heads, width) for run, heads, width in pairs))
