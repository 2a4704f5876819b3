"""What every module that was called returned, with the standard value that each part of it equals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.rows import removed
from ...measure.run import Run
from ...schema import Element, Returned
from .flow import Flow
from .known import Known
from .sites import Site, sites


def returned(run: Run, known: Known, forward: Callable[[], Any]) -> list[Returned]:
    """What each module returned at its first call in ``forward``, blocks with the same in one row.

    A shape that another call of the module has otherwise is left out. A module that gives back the very tensor it was
    given (a dropout, an identity) has no row.
    """
    rows: dict[tuple[Any, ...], tuple[Returned, list[int]]] = {}
    seen: dict[str, tuple[Any, ...]] = {}
    flow = Flow()

    def note(site: Site, module: torch.nn.Module, given: Any, out: Any) -> None:
        if any(out is each for each in given):
            return
        reads = flow.reads(site, module, given)
        flow.gives(site, out)
        if site.native in seen:
            row, blocks = rows[seen[site.native]]
            rows[seen[site.native]] = (_again(row, out), blocks)
            return
        elements = [_element(known, site, position, part) for position, part in parts(out)]
        row = Returned(
            path=site.path,
            module=type(module).__name__,
            blocks=None,
            vision=site.vision,
            type=type_name(out),
            elements=elements,
            reads=reads,
        )
        key = (row.path, row.module, row.type, reads, *((e.position, e.type, e.value, e.made) for e in elements))
        seen[site.native] = key
        blocks = rows.setdefault(key, (row, []))[1]
        if site.block is not None and site.block not in blocks:
            blocks.append(site.block)

    with ExitStack() as stack:
        for site, module in sites(run):
            handle = module.register_forward_hook(_hook(note, site), with_kwargs=True)
            stack.enter_context(removed(handle))
        forward()
    order = {site.path: place for place, (site, _) in reversed(list(enumerate(sites(run))))}
    changed = flow.rewritten()
    found = [
        row.model_copy(update={"blocks": sorted(blocks) or None, "rewritten": row.path in changed})
        for row, blocks in rows.values()
    ]
    return sorted(found, key=lambda row: (order[row.path], row.blocks or []))


def _again(row: Returned, out: Any) -> Returned:
    """A row after a further call: without the shapes that are not the same at both."""
    shapes = {position: list(part.shape) for position, part in parts(out) if isinstance(part, torch.Tensor)}
    elements = [
        each if each.shape == shapes.get(each.position) else each.model_copy(update={"shape": None})
        for each in row.elements
    ]
    return row.model_copy(update={"elements": elements})


def _hook(note: Callable[..., None], site: Site) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        note(site, module, (*args, *kwargs.values()), out)

    return hook


def parts(out: Any) -> Iterator[tuple[int | str | None, Any]]:
    """The positions of what a module returned: one, None, where that is a tensor or another single thing."""
    if isinstance(out, Mapping):
        yield from ((str(key), part) for key, part in out.items())
    elif isinstance(out, (tuple, list)):
        yield from enumerate(out)
    else:
        yield None, out


def type_name(held: Any) -> str:
    return type(held).__name__


def _element(known: Known, site: Site, position: int | str | None, part: Any) -> Element:
    if site.repeated or not isinstance(part, torch.Tensor):
        return Element(position=position, type=type_name(part))
    value = known.one(part, site.block, site.native, position, site.vision)
    made = None if value or site.block is None else known.of_logits(part, site.block)
    shape = list(part.shape)
    return Element(position=position, type=type_name(part), shape=shape, value=value, made=made and made[1])
