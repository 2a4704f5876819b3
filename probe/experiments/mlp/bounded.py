"""MLPs and mixtures whose output stays bounded, because their neurons are clipped or softcapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ...instruments.listening import listening
from ...instruments.rows import removed
from ...measure.listing import listed
from ...measure.run import Run
from ...wiring.operands import first_given
from ..answers import per_block
from ..base import Measured, Quirk, Verdict, some

FACTORS = (0.1, 1.0, 1e4, 1e6)
"""What an MLP's input is multiplied by: two where a bounded one still follows it, and two where it is at its limit."""

STAYS, FOLLOWS = 1.5, 2.0
"""Growth below which an output stays, and above which it follows its input."""


@dataclass(frozen=True)
class Size:
    """The largest numbers that a module took and gave; whether its parameters are vectors alone, as a norm's are."""

    taken: float
    given: float
    norm: bool


Sizes = dict[str, list[Size]]
"""By module of an MLP that gives as many channels as it takes, for each factor; the MLP itself has no name."""

Again = Callable[[Sequence[float]], Sizes]
"""What an MLP makes of the input it had, multiplied by each factor."""


def bounded_mlps(run: Run) -> Verdict:
    """Multiplies what each MLP or mixture takes: a module of it that gives as many channels as it takes, follows a
    small input and stays where a large one grows a hundredfold is bounded inside. Where a norm inside it takes more and
    gives as much, that norm is why.
    """
    found: list[bool | None] = []
    names: set[str] = set()
    for block in _mlps(run):
        bounded = {name for path, again in block for name in _bounded(path, again)}
        names |= bounded
        found.append(bool(bounded) if block else None)
    return per_block(found, {"modules": sorted(names)} if names else {}, absent="The blocks have no MLPs.")


def responses(run: Run, factors: Sequence[float]) -> list[dict[str, list[Size]]]:
    """For each block what its bounded modules take and give at inputs multiplied by each factor, by their paths."""
    found: list[dict[str, list[Size]]] = []
    for block in _mlps(run):
        found.append({})
        for path, again in block:
            if names := _bounded(path, again):
                every = {f"{path}.{module}".rstrip("."): sizes for module, sizes in again(factors).items()}
                found[-1] |= {name: every[name] for name in names}
    return found


def _bounded(path: str, again: Again) -> list[str]:
    """The outermost modules of an MLP that are bounded, by their path in the block."""
    every = again(FACTORS)
    grown = {module: (_growth(sizes[0], sizes[1]), _growth(sizes[2], sizes[3])) for module, sizes in every.items()}
    found: list[str] = []
    for module in sorted(grown):
        name = f"{path}.{module}".rstrip(".")
        if every[module][0].norm or any(name == outer or name.startswith(f"{outer}.") for outer in found):
            continue
        (_, small), (taken, given) = grown[module]
        norms = (grown[inner][1] for inner in grown if every[inner][0].norm and _within(inner, module))
        normed = any(more > FOLLOWS and same < STAYS for more, same in norms)
        if taken > FOLLOWS and given < STAYS and small > FOLLOWS and not normed:
            found.append(name)
    return found


def _within(inner: str, outer: str) -> bool:
    return not outer or inner.startswith(f"{outer}.")


def _growth(before: Size, after: Size) -> tuple[float, float]:
    """By how much what a module takes and gives has grown."""
    return after.taken / max(before.taken, 1e-30), after.given / max(before.given, 1e-30)


@listening
@contextmanager
def _mlps(run: Run) -> Iterator[list[list[tuple[str, Again]]]]:
    """Each block's MLPs and mixtures, by path, to be called again."""
    found: list[list[tuple[str, Again]]] = [[] for _ in run.text.envoys]
    with ExitStack() as stack:
        for index, (envoy, anatomy) in enumerate(zip(run.text.envoys, run.text.anatomy, strict=True)):
            for path in {term.hosts[-1] for term in anatomy.terms if term.kind in ("mlp", "moe") and term.hosts}:
                module = envoy._module.get_submodule(path)
                hook = module.register_forward_pre_hook(_keeping(found[index], path), with_kwargs=True)
                stack.enter_context(removed(hook))
        yield found


def _keeping(store: list[tuple[str, Again]], path: str) -> Callable[..., None]:
    def keep(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = first_given(args, kwargs)
        if given is None or not given.is_floating_point():
            return

        def again(factors: Sequence[float]) -> Sizes:
            sizes: Sizes = {}
            tokens = given.shape[:-1].numel()

            def repeated(item: Any) -> Any:
                if item is given:
                    return torch.cat([item * factor for factor in factors])
                if isinstance(item, (list, tuple)):
                    return type(item)(map(repeated, item))
                alike = isinstance(item, torch.Tensor) and item.shape[:1] == given.shape[:1]
                return torch.cat([item] * len(factors)) if alike else item

            with torch.no_grad(), ExitStack() as stack:
                for name, inner in module.named_modules():
                    hook = inner.register_forward_hook(_sizing(sizes, name, tokens, len(factors)), with_kwargs=True)
                    stack.enter_context(removed(hook))
                module(*map(repeated, args), **{name: repeated(item) for name, item in kwargs.items()})
            return sizes

        store.append((path, again))

    return keep


def _sizing(sizes: Sizes, name: str, tokens: int, factors: int) -> Callable[..., None]:
    """Keeps the sizes of a module that is called with all tokens once, in their order."""

    def size(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given = first_given(args, kwargs)
        first = out if isinstance(out, torch.Tensor) else out[0]
        own = [parameter.ndim for parameter in module.parameters()]
        if not own or given is None or not isinstance(first, torch.Tensor) or first.shape[-1:] != given.shape[-1:]:
            return
        if given.shape[:-1].numel() == first.shape[:-1].numel() == factors * tokens:
            taken, gave = (tensor.float().abs().reshape(factors, -1).amax(1).tolist() for tensor in (given, first))
            sizes[name] = [Size(one, other, max(own) == 1) for one, other in zip(taken, gave, strict=True)]

    return size


QUIRKS = (
    Quirk(
        "bounded-mlps",
        "Bounded neurons",
        "text",
        bounded_mlps,
        lambda m, b, n: (
            f"On {some(b or [], n)} neurons are bounded: what {_listed(m)} gives stays within a range however large "
            "its input is."
        ),
    ),
)


def _listed(measured: Measured) -> str:
    names = [f"`{name}`" for name in measured.get("modules") or []] or ["the MLP"]
    return listed(names, "or")
