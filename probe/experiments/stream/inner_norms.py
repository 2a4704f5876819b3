"""Norms inside sublayers, measured: what each norms together, what it adds under its root, and what its gain is.

A norm of the stream stands before or after a sublayer; these stand inside one: on queries and keys, on a latent vector,
behind a recurrence. What holds for the block's own norms need not hold for them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...instruments.extra import FEW
from ...instruments.listening import listening
from ...instruments.tap import removed
from ...measure.listing import listed
from ...measure.run import Run
from ...schema import Fact, Scalar
from ..base import Measured
from .norm_epsilon import ALIKE, added, candidates
from .norms import Call, calls, stream_norms

LARGE = 64.0
"""What a norm's input is multiplied by, so that what it adds under its root has no say."""

FORGETS = 1e-3
"""Relative change below which a module forgets the scale of its input, as a norm does."""

SPIKE = 1e3
"""What one number of a norm's input is multiplied by at the least: all that are normed with it shrink."""

STILL = 1e-5
"""Change of a number, relative to the largest, up to which it is not normed with the one that grows."""


GATES: tuple[tuple[Callable[[torch.Tensor], torch.Tensor], float], ...] = (
    (torch.nn.functional.silu, 1.2784645),
    (torch.sigmoid, 20.0),
    (torch.Tensor.float, 1.0),
)
"""What a norm may multiply by, of its gate, and the gate at which that is one."""

OTHER = 3e-4
"""What an entry of the config is set to, to see which norms follow it."""


@dataclass(frozen=True)
class InnerNorm:
    """A norm inside a sublayer.

    Attributes:
        over: how many numbers are normed together.
        groups: how many such groups a token has; None where the norm is not called once for each token.
        gain: ``weight``, ``1 + weight`` or ``none``.
        gains: how many numbers its gain has.
        gated: whether it takes a gate beside what it norms.
        under: what stands under the root: ``mean square`` or ``variance``; None where that was not told.
        added: what is added there; None where no one number explains how the norm shrinks what is small.
    """

    over: int
    groups: int | None
    gain: str
    gains: int
    gated: bool
    under: str | None
    added: float | None


def inner_norm_facts(run: Run) -> list[Fact]:
    """One fact that lists them; none where no block has such a norm."""
    found: dict[tuple[str, InnerNorm], tuple[int, str, Call]] = {}
    for index, block in enumerate(_inner(run)):
        for path, call in block:
            if (norm := inner_norm(call)) is not None:
                name = _folded(run.text.envoys[index]._module, path)
                found.setdefault((name, norm), (index, path, call))
    if not found:
        return []
    rows: list[dict[str, Scalar]] = []
    for (name, norm), (index, path, call) in found.items():
        if any(norm == replace(other, groups=(other.groups or 0) // FEW) for seen, other in found if seen == name):
            continue  # of a block that runs on the last token alone
        number, entry, fixed = _source(run, index, path, call, norm)
        rows.append(
            {
                "norms": name,
                "over": norm.over,
                "groups": norm.groups,
                "gains": norm.gains,
                "gain": norm.gain,
                "gated": norm.gated,
                "to": norm.under,
                "added": number,
                "entries": entry,
                "fixed": fixed,
            }
        )
    every = dict.fromkeys(f"`{name}`" for name, _ in found)
    said = [f"Norms inside sublayers: {listed([*every])}."]
    for number, names in _apart(run, rows).items():
        add = "adds" if len(names) == 1 else "add"
        said.append(f"{listed(names)} {add} {number:g} under the root, other than the norms before and after them.")
    measured: Measured = {key: [row[key] for row in rows] for key in rows[0]}
    return [
        Fact(
            name="inner_norms",
            label="Norms inside sublayers",
            value=len(rows),
            measured=measured,
            statement=" ".join(said),
        )
    ]


def _folded(block: torch.nn.Module, path: str) -> str:
    """A path with `{j}` for the place in each list of more than a few modules."""
    steps: list[str] = []
    at = block
    for step in path.split("."):
        steps.append("{j}" if isinstance(at, torch.nn.ModuleList) and len(at) > FEW else step)
        at = at.get_submodule(step)
    return ".".join(steps)


def _apart(run: Run, rows: Sequence[Mapping[str, Scalar]]) -> dict[float, list[str]]:
    """What no norm before or after a sublayer adds, and which norms add it; empty where nothing is known of those."""
    own = [told[0] for block in calls(run) for call in block if (told := added(call)) is not None]
    found: dict[float, list[str]] = {}
    for row in rows:
        number, name = row["added"], f"`{row['norms']}`"
        other = isinstance(number, float) and not any(math.isclose(number, each, rel_tol=ALIKE) for each in own)
        if own and isinstance(number, float) and other and name not in found.setdefault(number, []):
            found[number].append(name)
    return found


def _source(
    run: Run, index: int, path: str, call: Call, norm: InnerNorm
) -> tuple[float | None, str | None, bool | None]:
    """What a norm adds, the config's entry that it follows, and whether it follows none: told by building the block
    again from a config in which an entry of that number is another; None where that cannot be built.
    """
    if norm.added is None:
        return None, None, None
    for entry, number in candidates(run, norm.added).items():
        other = _with(run, index, path, call, entry)
        if other is None:
            return number, None, None
        if math.isclose(other, OTHER, rel_tol=ALIKE):
            return number, entry, False
    return norm.added, None, True


def _with(run: Run, index: int, path: str, call: Call, entry: str) -> float | None:
    """What the norm adds in a block of the same class that is built from a config with another number for the entry."""
    config = copy.deepcopy(run.model.text_config)
    setattr(config, entry, OTHER)
    try:
        block = type(run.text.envoys[index]._module)(config, layer_idx=index)
        other = inner_norm(replace(call, norm=block.get_submodule(path).to(call.given.device)))
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError):
        return None
    return None if other is None else other.added


def inner_norm(call: Call) -> InnerNorm | None:
    """What kind of norm a module is; None where it is none."""
    gated = any(isinstance(item, torch.Tensor) for item in (*call.args, *call.kwargs.values()))
    numbers = call.given.numel()
    rows = call.given.shape[0] if gated else max(2, call.given.shape[0])
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(rows, *call.given.shape[1:], generator=generator)
    call = replace(call, given=given.to(call.given))
    try:
        large, larger = (call.on(call.given * scale).float() for scale in (LARGE, 4 * LARGE))
    except (RuntimeError, TypeError):
        return None
    size = float(large.abs().max())
    if size == 0 or float((larger - large).abs().max()) > FORGETS * size:
        return None
    together = _together(call, large)
    over = int(together.sum())
    if over < 2:
        return None
    groups = numbers / (FEW * over)
    gain, gains = _gain(call)
    under, added = _root(call, over)
    return InnerNorm(over, int(groups) if groups == int(groups) else None, gain, gains, gated, under, added)


def _together(call: Call, large: torch.Tensor) -> torch.Tensor:
    """The numbers that shrink when the first one grows, as truth values, itself among them."""
    place = (0,) * call.given.ndim
    moving = torch.zeros_like(large, dtype=torch.bool)
    for sign in (1, -1):
        spiked = call.given * LARGE
        spiked[place] = sign * SPIKE * LARGE
        moving |= (call.on(spiked).float() - large).abs() > STILL * large.abs().max()
    moving[place] = True
    return moving


def _gain(call: Call) -> tuple[str, int]:
    """The kind of the gain, and of how many numbers it is."""
    weights = {name: parameter for name, parameter in call.norm.named_parameters() if name in call.weights}
    matters = [name for name in weights if _multiplies(call, name)]
    if not matters:
        return "none", 0
    zero = call.with_weights({name: torch.zeros_like(weights[name]) for name in weights})
    kind = "weight" if float(zero.abs().max()) < FORGETS * float(call.plain.float().abs().max()) else "1 + weight"
    return kind, weights[matters[0]].numel()


def _multiplies(call: Call, name: str) -> bool:
    """Whether a parameter is a factor of the output, and no bias: what it moves depends on the token."""
    parameter = dict(call.norm.named_parameters())[name]
    change = (call.with_weights({name: parameter + 1}) - call.plain.float()).flatten(0, -2)
    return float((change - change[:1]).abs().max()) > FORGETS * float(change.abs().max().clamp_min(1e-30))


def _root(call: Call, over: int) -> tuple[str | None, float | None]:
    """What stands under the root and what is added to it, where the numbers normed together lie side by side."""
    width = call.given.shape[-1]
    if over > width or width % over:
        return None, None
    grouped = call.given.float().unflatten(-1, (-1, over))
    even = grouped - grouped.mean(-1, keepdim=True)
    even = even / even.square().mean(-1, keepdim=True).sqrt()
    call = replace(call, given=even.flatten(-2).to(call.given.dtype))
    told = added(call, over)
    if told is None and (opened := _opened(call, over)) is not None:
        told = added(opened, over)
    return (None, None) if told is None else (told[1], told[0])


def _opened(call: Call, over: int) -> Call | None:
    """The call with a gate that multiplies by one, where a gate is taken and what it multiplies by is known: a number
    that stands before the norm would make what is added seem another.
    """
    given = call.given * LARGE
    generator = torch.Generator().manual_seed(1)
    gate = (0.5 + 2 * torch.rand(given.shape, generator=generator)).to(given)
    one, other = _with_gate(call, torch.ones_like(given)), _with_gate(call, gate)
    if one is None or other is None:
        return None
    ratio = (other.on(given) / one.on(given)).float().unflatten(-1, (-1, over))
    for function, opens in GATES:
        left = ratio / function(gate.float()).unflatten(-1, (-1, over))
        if float((left.std(-1) / left.mean(-1).abs()).max()) < FORGETS:
            return _with_gate(call, torch.full_like(given, opens))
    return None


def _with_gate(call: Call, gate: torch.Tensor) -> Call | None:
    """The call with another gate; None where it takes no single tensor of the shape of what it norms."""
    alike = [
        isinstance(item, torch.Tensor) and item.shape == gate.shape for item in (*call.args, *call.kwargs.values())
    ]
    if sum(alike) != 1:
        return None
    items = [gate if mine else item for mine, item in zip(alike, (*call.args, *call.kwargs.values()), strict=True)]
    kwargs = dict(zip(call.kwargs, items[len(call.args) :], strict=True))
    return replace(call, args=tuple(items[: len(call.args)]), kwargs=kwargs)


@listening
@contextmanager
def _inner(run: Run) -> Iterator[list[list[tuple[str, Call]]]]:
    """Path below the block and first call of every module that may be such a norm: one without children and without a
    matrix of a linear layer.
    """
    found: list[list[tuple[str, Call]]] = [[] for _ in run.text.envoys]
    with ExitStack() as stack:
        for index, envoy in enumerate(run.text.envoys):
            own = {*stream_norms(run, index)}
            for path, module in envoy._module.named_modules():
                if [*module.children()] or not path or any(f"{path}.".startswith(f"{norm}.") for norm in own):
                    continue
                if isinstance(module, torch.nn.Linear | torch.nn.Embedding | torch.nn.modules.conv._ConvNd):
                    continue
                hook = module.register_forward_hook(_keeping(found[index], path), with_kwargs=True)
                stack.enter_context(removed(hook))
        yield found


def _keeping(store: list[tuple[str, Call]], path: str) -> Callable[..., None]:
    def keep(norm: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given = args[0] if args else None
        if not isinstance(given, torch.Tensor) or not isinstance(out, torch.Tensor) or given.shape != out.shape:
            return
        if given.is_floating_point() and given.ndim > 1 and all(held != path for held, _ in store):
            store.append((path, Call(norm, given.detach().clone(), args[1:], kwargs)))

    return keep
