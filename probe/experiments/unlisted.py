"""Blocks that a forward runs beside those of the list that standard names count."""

from __future__ import annotations

from torch.nn import Module

from ..measure.rounding import digits
from ..measure.run import Run
from .answers import tolerance
from .base import Measured, Quirk, Verdict
from .extra import SHORT, decoder, forward, moved, noisy, token_ids
from .rows import Rows, hooks


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
    with hooks(leaving=modules):
        final = forward(run, token_ids(run, SHORT, rows.total))[0]
    change = moved(final, 1)
    if change < tolerance(run):
        return Verdict("no", measured={"unlisted": 0})
    return Verdict("yes", measured={"unlisted": len(paths), "at": paths, "noise_moves_the_result": digits(change, 2)})


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
    return (
        f"A forward also runs blocks that are not among `layers`{where}: nothing on this page is read in them, and "
        "what they do to the stream happens outside the blocks listed here."
    )


MOST = 4
"""Most places that a sentence names one by one."""

QUIRKS = (Quirk("unlisted-blocks", "Blocks outside the list", "text", unlisted_blocks, _sentence),)
