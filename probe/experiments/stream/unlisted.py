"""Blocks that a forward runs beside those of the list that standard names count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch.nn import Module

from ...instruments.extra import SHORT, decoder, forward, moved, noisy, token_ids
from ...instruments.rows import Rows, hooks, removed
from ...measure.rounding import digits
from ...measure.run import Run
from ..answers import tolerance
from ..base import Measured, Quirk, Verdict


def unlisted_blocks(run: Run) -> Verdict:
    """Looks in the text model for modules outside the list of blocks that hold weights of the same names and sizes as a
    listed one, and adds noise to what they give: where the final stream moves, they are blocks that no `layers[i]`
    reaches.
    """
    paths = _alike(run)
    if not paths:
        return Verdict("no", measured={"unlisted": 0})
    rows = Rows(2)
    modules = [(decoder(run).get_submodule(path), rows.change(1, noisy)) for path in paths]
    with hooks(leaving=modules), _stretches(run, paths) as order:
        final = forward(run, token_ids(run, SHORT, rows.total))[0]
    change = moved(final, 1)
    if change < tolerance(run):
        return Verdict("no", measured={"unlisted": 0})
    measured: Measured = {"unlisted": len(paths), "at": paths, "noise_moves_the_result": digits(change, 2)}
    first = len(dict.fromkeys(order))
    if first > 1 and order == order[:first] * (len(order) // first):
        measured |= {"order": order[:first], "turns": len(order) // first}
    return Verdict("yes", measured=measured)


@contextmanager
def _stretches(run: Run, paths: list[str]) -> Iterator[list[str]]:
    """The stretches of blocks in the order in which a forward runs them: `LISTED`, or the list that others are in."""
    found: list[str] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda *_: found.append(name) if found[-1:] != [name] else None

    places = [(envoy._module, LISTED) for envoy in run.text.envoys]
    places += [(decoder(run).get_submodule(path), re.sub(r"\.\d+$", "", path)) for path in paths]
    with ExitStack() as stack:
        for module, name in places:
            stack.enter_context(removed(module.register_forward_pre_hook(noting(name))))
        yield found


def _alike(run: Run) -> list[str]:
    """Paths, below the decoder, of modules outside every listed block that have the weights of one."""
    listed = [envoy._module for envoy in run.text.envoys]
    within = {module for block in listed for module in block.modules()}
    beside = {
        path: module
        for path, module in decoder(run).named_modules()
        if module not in within and any(True for _ in module.children()) and within.isdisjoint(module.modules())
    }
    forms = {_form(block) for block in listed} if beside else set()
    return [path for path, module in beside.items() if _form(module) in forms]


def _form(module: Module) -> frozenset[tuple[str, tuple[int, ...]]]:
    """The names and sizes of a module's weights."""
    return frozenset((name, tuple(weight.shape)) for name, weight in module.named_parameters())


def _sentence(measured: Measured, _: list[int] | None, __: int) -> str:
    places = [f"`{path}`" for path in measured.get("at") or []]
    where = f" ({', '.join(places)})" if places and len(places) <= MOST else ""
    turns = measured.get("turns")
    taken = ", then ".join(f"`{name}`" for name in measured.get("order") or [])
    times = {1: "once", 2: "twice"}.get(turns or 0, f"{turns} times")
    return (
        f"A forward also runs blocks that are not among `layers`{where}: nothing on this page is read in them, and "
        "what they do to the stream happens outside the blocks listed here."
        + (f" It runs {taken}, and that {times}." if turns else "")
    )


LISTED = "layers"
"""What the listed blocks are called among the stretches of blocks."""

MOST = 4
"""Most places that a sentence names one by one."""

QUIRKS = (Quirk("unlisted-blocks", "Blocks outside the list", "text", unlisted_blocks, _sentence),)
