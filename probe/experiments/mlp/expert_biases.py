"""What the experts of a mixture add whatever they are given: biases of an expert's own, or one for all of them.

A mixture is called with a token of zeros, of which experts without a bias make nothing. What moves its output then, and
is no matrix, is a bias. A row of it is an expert's own where it moves the tokens that are sent to this expert, and no
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...measure.edits import noise_like
from ...measure.listing import listed
from ...measure.native import native_path
from ...measure.run import Run
from ...schema import Fact
from ..answers import tolerance
from ..calls.halves import plain_experts
from .expert_matrices import Mixture
from .expert_weights import of_each_kind, scored

SEEDS = 4
"""Tokens that are sent to experts, to see which rows of a bias move them."""

ALONG = 1e-3
"""How far a change of the output may be from the line of the row's change, relative to it."""


@dataclass(frozen=True)
class Biases:
    """What was found of one mixture.

    Attributes:
        own: the parameters with a row for each expert, by name from the mixture.
        added: those of them whose row is added to what its expert gives; the others act inside the expert.
        common: those that are added once to what the mixture gives, to whichever experts a token is sent.
        whole: whether a token of zeros gives zeros without these, so that they are all.
    """

    own: tuple[str, ...]
    added: tuple[str, ...]
    common: tuple[str, ...]
    whole: bool


def bias_of_experts_facts(run: Run) -> list[Fact]:
    """One for each kind of mixture that could be called with a token by itself."""

    def fact(name: str, index: int, module: torch.nn.Module) -> Fact | None:
        found = _examined(run, module, scored(run, index))
        if found is None or not found.whole:
            return None
        stem = native_path(run, index, module)
        own, added, common = ([f"{stem}.{path}" for path in paths] for paths in (found.own, found.added, found.common))
        return Fact(
            name=name,
            label="Biases of experts",
            value=len(own) + len(common),
            unit="parameters",
            measured={key: paths for key, paths in (("own", own), ("added", added), ("common", common)) if paths},
            statement=_said(stem, own, added, common),
        )

    return of_each_kind(run, "expert_biases", fact)


def _examined(run: Run, module: torch.nn.Module, count: int) -> Biases | None:
    """What is seen of a mixture with a few tokens; None where it cannot be called with one."""
    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    if weight is None:
        return None
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(SEEDS, 1, 1, run.model.hidden_size, generator=generator).to(weight.device, weight.dtype)
    try:
        with plain_experts(run.model._module), torch.no_grad():
            return examine([Mixture(module, token, count) for token in tokens], count, tolerance(run))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None


def examine(mixtures: list[Mixture], count: int, close: float) -> Biases | None:
    """The biases of a mixture; None of a module without experts, and where what it gives for
    zeros is no number.

    Args:
        mixtures: the same module with different tokens.
        count: how many experts it has; 0 where that is not known.
        close: change, relative to the output, up to which nothing moves.
    """
    first = mixtures[0]
    if not _has_experts(first, count):
        return None
    zeros = Mixture(first.module, torch.zeros_like(first.token), count)
    none = zeros.output()
    if none is None or not bool(none.isfinite().all()):
        return None
    if not bool(none.any()):
        return Biases((), (), (), whole=True)
    own, added, common = [], [], []
    for name, parameter in _candidates(first, count):
        change = noise_like(parameter).to(parameter.dtype)
        moved = zeros.moved({name: parameter + change})
        if moved is None or float(moved.abs().max()) <= close * float(none.abs().max()):
            continue
        if parameter.ndim == 1:
            if all(_is_added(mixture.moved({name: parameter + change}), change) for mixture in mixtures):
                common.append(name)
        elif all(_moves_its_tokens(mixture, name, parameter, change) for mixture in mixtures):
            own.append(name)
            if all(_goes_along(mixture, name, parameter, change) for mixture in mixtures):
                added.append(name)
    parameters = dict(first.module.named_parameters())
    rest = zeros.output({name: torch.zeros_like(parameters[name]) for name in (*own, *common)})
    return Biases(tuple(own), tuple(added), tuple(common), whole=rest is not None and not bool(rest.any()))


def _has_experts(mixture: Mixture, count: int) -> bool:
    """Whether it holds a stack of experts' matrices, or a list of as many modules as there are experts."""
    lists = (len(part) for part in mixture.module.modules() if isinstance(part, torch.nn.ModuleList))
    return bool(mixture.matrices()) or (count > 1 and count in lists)


def _candidates(mixture: Mixture, count: int) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Parameters with a row for each expert, and vectors, of the modules that hold stacked matrices and of those
    around them: what else a mixture has is a router's or a shared expert's.
    """
    owners = {name.rpartition(".")[0] for name in mixture.matrices()}
    around = {path[:end] for path in owners for end in (0, *(i for i, c in enumerate(path) if c == "."), len(path))}
    for name, parameter in mixture.module.named_parameters():
        rows = parameter.ndim == 2 and len(parameter) == count and name not in mixture.stacks
        if name.rpartition(".")[0] in around and parameter.is_floating_point() and (rows or parameter.ndim == 1):
            yield name, parameter


def _moves_its_tokens(mixture: Mixture, name: str, bias: torch.Tensor, change: torch.Tensor) -> bool:
    """Whether the rows of the experts that a token is sent to move it, each by itself, and no other row does."""
    mixture.matrices()
    sent = torch.zeros(len(bias), 1, dtype=bias.dtype, device=bias.device)
    sent[list(mixture.sent)] = 1
    others = mixture.moved({name: bias + (1 - sent) * change})
    if others is None or bool(others.any()):
        return False
    return all(_any(mixture.moved({name: _with_row(bias, expert, change)})) for expert in mixture.sent)


def _goes_along(mixture: Mixture, name: str, bias: torch.Tensor, change: torch.Tensor) -> bool:
    """Whether what a row's change adds to the output is a multiple of that change."""
    for expert in mixture.sent:
        moved = mixture.moved({name: _with_row(bias, expert, change)})
        if moved is None or moved.shape != change[expert].shape:
            return False
        factor = float(moved @ change[expert]) / float(change[expert].square().sum())
        if float((moved - factor * change[expert]).abs().max()) > ALONG * float(moved.abs().max()):
            return False
    return True


def _is_added(moved: torch.Tensor | None, change: torch.Tensor) -> bool:
    """Whether the output moves by the change itself."""
    return (
        moved is not None
        and moved.shape == change.shape
        and float((moved - change).abs().max()) <= ALONG * float(change.abs().max())
    )


def _with_row(bias: torch.Tensor, expert: int, change: torch.Tensor) -> torch.Tensor:
    other = bias.detach().clone()
    other[expert] += change[expert]
    return other


def _any(moved: torch.Tensor | None) -> bool:
    return moved is not None and bool(moved.any())


def _said(stem: str, own: list[str], added: list[str], common: list[str]) -> str:
    if not own and not common:
        return f"The experts of `{stem}` have no biases: a token of zeros gives zeros."
    said = []
    if own:
        names = listed([f"`{path}`" for path in own])
        said.append(
            f"Each expert has biases of its own, a row in {names}: a changed row moves the tokens that are sent to its "
            "expert, and no others."
        )
    if added:
        names = listed([f"`{path}`" for path in added])
        said.append(f"A row of {names} is added to what its expert gives.")
    said += [
        f"`{path}` is added once to what the mixture gives, to whichever experts a token is sent." for path in common
    ]
    if not own:
        said.append("The experts have no biases of their own: without it a token of zeros gives zeros.")
    return " ".join(said)
