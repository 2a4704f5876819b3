"""What the last projections of attentions and MLPs, and the head, add whatever they are given: a bias.

The parts of single heads and neurons leave it out, and so does what the stream's parts give of the logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...measure.edits import noise_like
from ...measure.listing import listed
from ...measure.native import in_block
from ...measure.run import Run
from ...schema import Fact
from ...standard.trace import Key
from ..answers import tolerance
from ..attention.projections import at_zero
from ..base import some

SIDES = {"attention_premix": "in", "mlp_neurons": "in", "lm_head_output": "out"}
"""The values at linear modules that end a sublayer or the model, and the side at which each stands."""


def bias_facts(run: Run) -> list[Fact]:
    """Which linear modules behind heads, neurons and the final stream give something else than zero for zeros; nothing
    where no such module is linear.
    """
    blocks: dict[str, list[int]] = {}
    biased: dict[str, list[int]] = {}
    head = ""
    for path, block, module in sorted(_behind(run), key=lambda found: found[1] is None):  # the head last
        head = path if block is None else head
        at = [] if block is None else [block]
        blocks.setdefault(path, []).extend(at)
        if at_zero(run, module) > 0:
            biased.setdefault(path, []).extend(at)
    if not blocks:
        return []
    said = []
    inner = [path for path in biased if path != head]
    if inner:
        each = listed([f"`{path}`{_where(run, biased[path], blocks[path])}" for path in inner])
        add, they = ("adds", "it gives") if len(inner) == 1 else ("add", "each gives")
        said.append(
            f"{each} {add} a bias: the parts of single heads or neurons add up to what {they} less its bias, "
            "which no head and no neuron has a part in."
        )
    if plain := [path for path in blocks if path not in biased]:
        give = "gives" if len(plain) == 1 else "give"
        said.append(f"{listed([f'`{path}`' for path in plain])} {give} zero for zeros, so without a bias.")
    if head in biased:
        said.append(f"`{head}` adds a bias to the logits, which no part of the stream gives.")
    return [
        Fact(
            name="last_biases",
            label="Biases behind heads and neurons",
            value=len(biased),
            unit="modules",
            measured=_measured(biased, blocks),
            statement=" ".join(said),
        )
    ]


def _measured(biased: dict[str, list[int]], every: dict[str, list[int]]) -> dict[str, Any]:
    some_only = sorted({block for path, found in biased.items() if found != every[path] for block in found})
    found: dict[str, Any] = {"modules": sorted(biased)} if biased else {}
    return found | ({"blocks": some_only} if some_only else {})


def _where(run: Run, found: list[int], every: list[int]) -> str:
    return "" if sorted(found) == sorted(every) else f" on {some(sorted(found), len(run.text))}"


def _behind(run: Run) -> Iterator[tuple[str, int | None, torch.nn.Module]]:
    """The text model's modules, each once, with their native paths and blocks."""
    root, told = run.model._module, set()
    paths = {id(module): path for path, module in root.named_modules()}
    text = {id(module) for envoy in run.text.envoys for module in envoy._module.modules()}
    for label, block, host in run.model.hosts():
        for name, wanted in SIDES.items():
            value = host.standard_values().get(name)
            if value is None or Key(label, block, name) not in run.readings:
                continue
            path, side, _ = value.location.plain(host, run.model)
            module = root.get_submodule(path)
            mine = block is None or id(module) in text
            if side == wanted and mine and id(module) not in told and _is_affine(run, module):
                told.add(id(module))
                yield (
                    path if block is None else in_block(path, paths[id(run.text.envoys[block]._module)]),
                    block,
                    module,
                )


def _is_affine(run: Run, module: torch.nn.Module) -> bool:
    """Whether a module with a matrix gives for a sum of vectors the sum of what it gives for each, less a constant."""
    matrix = next((p for p in module.parameters(recurse=False) if p.ndim == 2), None)
    if matrix is None:
        return False
    for width in dict.fromkeys((getattr(module, "in_features", matrix.shape[-1]), *matrix.shape)):
        vectors = torch.zeros(2, int(width), dtype=run.dtype, device=run.model.device)
        one, other = noise_like(vectors).to(run.dtype).unbind()
        try:
            with torch.no_grad():
                out = module(torch.stack([one, other, one + other, torch.zeros_like(one)]))
        except (RuntimeError, TypeError, ValueError):
            continue
        if not isinstance(out, torch.Tensor):
            return False
        off = float((out[0] + out[1] - out[2] - out[3]).abs().max())
        return off < 10 * tolerance(run) * float(out.abs().max().clamp_min(1e-30))
    return False
