"""Identities: equations between standard values, evaluated on every block of a run in float32.

Each pins where values are read: a location moved to a neighbour, a factor left out or a row left unnormalised breaks at
least one of them. The module parts they recompute with (norms, projections) come from the derived wiring and from the
model's tree, never from the locations under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from nnsight.intervention.envoy import Envoy

from ..schema import Identity
from ..standard.stack import Stack
from ..wiring.sums import text, value
from .edits import factor_value
from .rounding import one_digit
from .run import Run

Pair = tuple[torch.Tensor, torch.Tensor]
BlockCheck = Callable[["Block"], Pair | None]
RootCheck = Callable[[Run], Pair | None]


class Form(NamedTuple):
    """One way in which families write an equation, with both sides evaluated."""

    expression: str
    pair: Pair


BlockForms = Callable[["Block"], Iterable[Form]]
RootForms = Callable[[Run], Iterable[Form]]

RELATIVE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 4e-3}
"""Tolerance of a comparison relative to the largest value in it, by the dtype the model ran in."""


@dataclass
class Block:
    """One block of a stack, as a check sees it: its values in float32, and its modules."""

    run: Run
    stack: Stack
    index: int

    def value(self, host: str, name: str) -> torch.Tensor | None:
        return self.stack.get(self.index, host, name)

    def stream(self, name: str) -> torch.Tensor | None:
        """A point of the stream, with lanes on the axis on which the block itself has them."""
        given = self.value("", name)
        axes = self.stack.envoys[self.index].standard_values()[name].axes
        if given is None or axes is None or given.ndim < 4:
            return given
        return axes.fold(given, [given.shape[axes.dims.index(axis)] for (axis,) in axes.groups])

    @property
    def module(self) -> torch.nn.Module:
        """The native block."""
        return self.stack.envoys[self.index]._module

    def part(self, path: str) -> torch.nn.Module | None:
        """The native module under a standard path from the block, or None."""
        envoy = self.envoy(path)
        return None if envoy is None else envoy._module

    def envoy(self, path: str) -> Envoy | None:
        """The envoy under a standard path from the block, or None."""
        envoy: Any = self.stack.envoys[self.index]
        for step in path.split(".") if path else ():
            envoy = getattr(envoy, step, None)
            if not isinstance(envoy, Envoy):
                return None
        return envoy

    def apply(self, module: torch.nn.Module | str | None, value: torch.Tensor) -> torch.Tensor:
        """What a native module gives for a value, in float32; the value itself where there is no module."""
        if module is None:
            return value
        native: Any = self.module.get_submodule(module) if isinstance(module, str) else module
        with torch.no_grad():
            return native(value.to(self.run.dtype)).float()


@dataclass
class Check:
    """A named equation over one block, or over the whole model.

    It is one equation (``expression``, with ``block`` or ``root``), or one that families write in several forms
    (``forms``, ``root_forms``): the first form that holds is taken, the plainest where none does, and blocks that need
    different forms get an equation each.
    """

    name: str
    expression: str = ""
    block: BlockCheck | None = None
    root: RootCheck | None = None
    forms: BlockForms | None = None
    root_forms: RootForms | None = None

    def on(self, block: Block) -> Iterable[Form]:
        """The forms on a block: none where the block lacks a value."""
        if self.forms is not None:
            yield from self.forms(block)
        elif self.block is not None and (pair := self.block(block)) is not None:
            yield Form(self.expression, pair)

    def on_root(self, run: Run) -> Iterable[Form]:
        """The forms over the whole model: none where it lacks a value."""
        if self.root_forms is not None:
            yield from self.root_forms(run)
        elif self.root is not None and (pair := self.root(run)) is not None:
            yield Form(self.expression, pair)

    @property
    def of_blocks(self) -> bool:
        return self.forms is not None or self.block is not None


@dataclass
class Worst:
    """The largest error of a check over the blocks it applies to, in the block with the least room left."""

    blocks: list[int] = field(default_factory=list)
    error: float = 0.0
    tolerance: float = 0.0
    broken: list[int] = field(default_factory=list)
    mismatch: str | None = None

    def add(self, index: int, pair: Pair, relative: float) -> None:
        left, right = pair
        self.blocks.append(index)
        if left.shape != right.shape:
            self.broken.append(index)
            self.mismatch = f"the two sides have the shapes {list(left.shape)} and {list(right.shape)}"
            return
        tolerance = relative * max(1.0, float(right.abs().max()) if right.numel() else 1.0)
        error = float((left - right).abs().max()) if right.numel() else 0.0
        if not error <= tolerance:
            self.broken.append(index)
        if not error <= self.error:
            self.error = error
        self.tolerance = max(self.tolerance, tolerance)


def evaluate(run: Run, stack: Stack, checks: Iterable[Check]) -> list[Identity]:
    """Evaluate checks on every block of ``stack``; a check that applies to no block is left out."""
    relative = RELATIVE.get(run.dtype, RELATIVE[torch.float32])
    lenient = hasattr(run.model.family, "draft") or hasattr(run.model.family, "UNKEPT")
    found = []
    for check in checks:
        worst: dict[str, Worst] = {}
        taken: dict[int, Form] = {}
        for index in range(len(stack)) if check.of_blocks else (0,):
            forms = check.on(Block(run, stack, index)) if check.of_blocks else check.on_root(run)
            form = _chosen(forms, relative, lenient=lenient and check.block is None)
            if form is not None:
                taken[index] = form
        if len({form.expression for form in taken.values()}) > 1:
            taken = _agreed(check, taken, run, stack, relative, lenient=lenient)
        for index, form in taken.items():
            worst.setdefault(form.expression, Worst()).add(index, form.pair, relative)
        found += [_identity(check, expression, errors, run) for expression, errors in worst.items()]
    return found


def _agreed(
    check: Check, taken: dict[int, Form], run: Run, stack: Stack, relative: float, *, lenient: bool
) -> dict[int, Form]:
    """The forms of blocks that took different ones, in as few expressions as hold: on one block some hold by chance."""
    wanted = {form.expression for form in taken.values()}
    holding: dict[int, dict[str, Form]] = {}
    for index in taken:
        same = [(form.expression, form) for form in _all(check.on(Block(run, stack, index)), lenient=lenient)]
        holding[index] = {text: form for text, form in same if text in wanted and fits(form.pair, relative)}
    agreed = {index: form for index, form in taken.items() if not holding[index]}
    while left := [index for index in taken if index not in agreed]:
        reach = {text: sum(text in holding[index] for index in left) for index in left for text in holding[index]}
        best = max(reach, key=lambda text: reach[text])
        agreed |= {index: holding[index][best] for index in left if best in holding[index]}
    return {index: agreed[index] for index in taken}


def _chosen(forms: Iterable[Form], relative: float, *, lenient: bool) -> Form | None:
    """The first form that holds; the first of all where none does.

    Where the places were derived (``lenient``), a module that cannot be called as most families' are says nothing; the
    block's sum and the way from block to block need no such call.
    """
    first = None
    for form in _all(forms, lenient=lenient):
        if fits(form.pair, relative):
            return form
        first = first or form
    return first


def _all(forms: Iterable[Form], *, lenient: bool) -> Iterator[Form]:
    try:
        yield from forms
    except (TypeError, RuntimeError):
        if not lenient:
            raise


def fits(pair: Pair, relative: float = RELATIVE[torch.float32]) -> bool:
    """Whether two sides agree up to ``relative`` times the largest value, or 1 where all are smaller."""
    left, right = pair
    if left.shape != right.shape:
        return False
    if not right.numel():
        return True
    return float((left - right).abs().max()) <= relative * max(1.0, float(right.abs().max()))


def _identity(check: Check, expression: str, worst: Worst, run: Run) -> Identity:
    holds = not worst.broken
    return Identity(
        name=check.name,
        expression=expression,
        blocks=worst.blocks if check.of_blocks else None,
        holds=holds,
        max_abs_error=one_digit(worst.error),
        tolerance=one_digit(worst.tolerance, up=True),
        dtype=str(run.dtype).removeprefix("torch."),
        broken=worst.broken if check.of_blocks and not holds else None,
        reason=None if holds else worst.mismatch or f"the two sides differ by {one_digit(worst.error):g}",
    )


def block_sums(stack: Stack) -> Iterator[Check]:
    """The block's sum, one check for each distinct expression among the blocks."""
    expressions = [expression(stack, index) for index in range(len(stack))]
    for written in dict.fromkeys(expressions):

        def total(block: Block, written: str = written) -> Pair | None:
            if expressions[block.index] != written:
                return None
            entering, leaving = block.stream("layer_input"), block.stream("layer_output")
            if entering is None or leaving is None:
                return None
            terms = [block.value(c.host, c.name) for c in block.stack.contributions[block.index]]
            held = [term for term in terms if term is not None]
            if len(held) < len(terms):
                return None
            tree = block.stack.anatomy[block.index].tree
            number = partial(factor_value, block.stack, block.index)
            return value(tree, entering, held, number, block.apply), leaving

        yield Check("block sum", written, total)


def expression(stack: Stack, index: int) -> str:
    """The block's sum over standard names, as the page writes it."""
    prefix = "vision." if "vision" in stack.label else ""
    names = [f"{c.host}.{c.name}" if c.host else c.name for c in stack.contributions[index]]
    return text(stack.anatomy[index].tree, f"{prefix}layers[i].input", names, equals="layer_output")
