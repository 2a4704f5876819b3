"""Facts on a half-precision load: what stays float32, where norms round, what embeddings are multiplied by.

The call is the one that decides the stream's dtype; norms are called by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch

from ...instruments.extra import once
from ...instruments.reweighted import called_with
from ...measure.listing import listed
from ...measure.native import of_any_block
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Fact
from ...standard.stack import same
from ..answers import tolerance
from ..stream.norms import Call, calls
from .halves import half

HALF = torch.bfloat16
NAMED = 4
"""Most modules that the sentence names."""

ALIKE = 0.98
"""Share of a norm's numbers that have to be equal, bit by bit: sums in float32 may come in another order."""

APART = 2e-4
"""How near a factor has to be to a number, relative to it: less than a rounding to bfloat16 moves it."""

Rounds = Literal["once", "before the gain", "throughout"]

SAYS: dict[Rounds, str] = {
    "once": "compute in float32, their gain included, and round once at the end",
    "before the gain": "compute in float32, round the quotient to bfloat16 and multiply that by the weight",
    "throughout": "round elsewhere than once, behind the gain or before it",
}


def half_facts(run: Run) -> list[Fact]:
    """Those of a checkpoint in float32; nothing where it does not run with bfloat16 weights."""
    if run.dtype is not torch.float32:
        return []
    try:
        half(run)
    except RuntimeError:
        return []
    return [*_dtypes(run), *_norms(run), *_embeddings(run)]


def _dtypes(run: Run) -> Iterator[Fact]:
    """Modules that return float32, once for all blocks, and the logits."""
    found = half(run)
    if found.logits is None:
        return
    wide: dict[str, list[int]] = {}
    for path, dtypes in found.modules.items():
        places = [place for place, dtype in enumerate(dtypes) if dtype is torch.float32]
        if places and path:
            wide.setdefault(of_any_block(path), places if len(dtypes) > 1 else [])
    logits = str(found.logits).removeprefix("torch.")
    said = f"In a bfloat16 load logits are {logits}"
    names = [f"`{path}`" for path in wide]
    if not names:
        said += ", and every module returns bfloat16"
    elif len(names) <= NAMED:
        said += f"; float32 comes from {listed(names)} alone"
    else:
        said += f"; float32 comes from {len(names)} kinds of modules, {', '.join(names[:NAMED])} among them"
    yield Fact(name="half_dtypes", label="Float32 in a half-precision load", value=len(wide), unit="modules",
               measured={"logits": logits, "modules": [*wide]}, statement=f"{said}.")  # fmt: skip


def _norms(run: Run) -> Iterator[Fact]:
    """Where the norms of the blocks round in a half-precision load."""
    found: dict[Rounds, set[str]] = {}
    for block in calls(run):
        for call in block:
            rounds = rounding(call)
            if rounds is not None:
                found.setdefault(rounds, set()).add(type(call.norm).__name__)
    if not found:
        return
    said = []
    for how, names in sorted(found.items()):
        which = "the norms of the blocks"
        if len(found) > 1:
            which = "norms of " + listed([f"`{name}`" for name in sorted(names)])
        said.append(f"{which} {SAYS[how]}")
    yield Fact(name="norm_rounding", label="Ways in which norms round", value=len(found),
               measured={how.replace(" ", "_"): sorted(names) for how, names in sorted(found.items())},
               statement=f"With bfloat16 weights {'; '.join(said)}.")  # fmt: skip


def rounding(call: Call) -> Rounds | None:
    """Which of the ways to round gives the numbers of a norm that is called in bfloat16; None where more than one does,
    or where it has no weight or takes more than the tensor.
    """
    if call.args or call.kwargs or len(call.weights) == 0 or any(p.ndim > 1 for p in call.norm.parameters()):
        return None
    weights = {name: p.detach().to(HALF) for name, p in call.norm.named_parameters()}
    given = call.given.to(HALF)
    try:
        with torch.no_grad():
            made = called_with(call.norm, weights, given)
            wide = {name: weight.float() for name, weight in weights.items()}
            once_ = called_with(call.norm, wide, given.float()).to(HALF)
            before = _before_the_gain(call, weights, given)
    except (RuntimeError, TypeError):
        return None
    if not isinstance(made, torch.Tensor) or made.dtype is not HALF or before is None:
        return None
    fits: list[Rounds] = []
    if _alike(made, once_):
        fits.append("once")
    if _alike(made, before):
        fits.append("before the gain")
    if len(fits) > 1:
        return None
    return fits[0] if fits else "throughout"


def _before_the_gain(call: Call, weights: dict[str, torch.Tensor], given: torch.Tensor) -> torch.Tensor | None:
    """The quotient, rounded, times the gain in bfloat16, and the bias added; None where the norm is no such product."""
    zeros = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items()}
    bias = called_with(call.norm, {name: w.float() for name, w in weights.items()}, torch.zeros_like(given).float())
    for name in call.weights:
        one = {**zeros, name: zeros[name] + 1}
        quotient = called_with(call.norm, one, given.float())
        unit = called_with(call.norm, zeros, given.float())
        if float(quotient.abs().max()) == 0:
            continue
        more = float(unit.abs().max()) > 0  # a gain of one plus the weight
        gain = weights[name] + 1 if more else weights[name]
        quotient = unit if more else quotient
        shift = bias[..., :1, :].to(HALF) if float(bias.abs().max()) > 0 else torch.zeros_like(gain)
        product: torch.Tensor = gain * quotient.to(HALF)
        return product + shift if float(shift.abs().max()) > 0 else product
    return None


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and float((left == right).float().mean()) >= ALIKE


@once
def _factor(run: Run) -> float | None:
    """What rows of the embedding table are multiplied by on their way to the first block, in float32; None where the
    stream is no multiple of them.
    """
    entering, ids = run.text.get(0, "", "layer_input"), run.inputs.get("input_ids")
    table = run.model._module.get_input_embeddings()
    return None if entering is None or ids is None else _ratio(table, ids, entering, tolerance(run))


def _ratio(table: torch.nn.Module, ids: torch.Tensor, entering: torch.Tensor, close: float) -> float | None:
    weight = getattr(table, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2:
        return None
    rows = weight.detach().float()[ids]
    factor = _fitted(rows, entering)
    return factor if factor is not None and same(factor * rows, entering, close) else None


def _fitted(rows: torch.Tensor, stream: torch.Tensor) -> float | None:
    """The factor that brings rows of the table nearest to a stream of their shape; None for another shape."""
    if rows.shape != stream.shape:
        return None
    return float((rows * stream).sum() / rows.square().sum().clamp_min(1e-30))


def _embeddings(run: Run) -> Iterator[Fact]:
    """The factor of the embeddings in a half-precision load, where bfloat16 cannot hold the one of float32."""
    exact, found = _factor(run), half(run)
    if exact is None or abs(exact - 1) < APART or found.entering is None:
        return
    table = run.model._module.get_input_embeddings()
    weight = table.weight.detach()
    rows = weight.to(HALF).float()[found.ids]
    factor = _fitted(rows, found.entering)
    if factor is None:
        return
    rounded, root = _in_half(exact), rows.shape[-1] ** 0.5
    if abs(exact / root - 1) > APART > abs(exact / _in_half(root) - 1) and abs(factor / exact - 1) < APART:
        how = f"{exact:g}, what bfloat16 makes of √{rows.shape[-1]} = {digits(root):g}, in a float32 load too"
        yield _embedding_fact(factor, exact, f"Embeddings are multiplied by {how}.")
    elif abs(rounded / exact - 1) < 2 * APART:
        return
    elif abs(factor / rounded - 1) < APART:
        how = f"{rounded:g}, what bfloat16 makes of {digits(exact):g}"
        yield _embedding_fact(factor, exact, f"In a bfloat16 load embeddings are multiplied by {how}.")
    elif abs(factor / exact - 1) < APART:
        how = f"{digits(exact):g} as in float32, though bfloat16 would hold it as {rounded:g}"
        yield _embedding_fact(factor, exact, f"In a bfloat16 load embeddings are multiplied by {how}.")


def _in_half(number: float) -> float:
    return float(torch.tensor(number).to(HALF))


def _embedding_fact(factor: float, exact: float, statement: str) -> Fact:
    return Fact(
        name="half_embedding_factor",
        label="Factor of the embeddings in a half-precision load",
        value=digits(factor),
        measured={"in_float32": digits(exact)},
        statement=statement,
    )
