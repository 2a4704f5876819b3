"""Whether a twin builds and runs, and what stands in it: the facts that the table and the tests are made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import nn

from probe.checkpoints.factory import build, sources


@dataclass(frozen=True)
class Row:
    """One twin's result.

    Attributes:
        blocks: length of the largest stack of blocks.
        kinds: how many blocks of each kind, in order of appearance.
        seconds: wall time of the build and one forward.
        error: what went wrong; None where the logits are finite and differ.
    """

    model_type: str
    twin: str
    class_name: str = ""
    blocks: int = 0
    kinds: tuple[int, ...] = ()
    seconds: float = 0.0
    error: str | None = None


def check(model_type: str, name: str) -> Row:
    """Builds a twin and runs it once; whatever is raised becomes the row's error."""
    begun = time.perf_counter()
    try:
        module = build.build(model_type, name)
        with torch.no_grad():
            logits = module(**build.inputs(module)).logits
        _, blocks = stack(module)
        return Row(
            model_type,
            name,
            type(module).__name__,
            len(blocks),
            tuple(Counter(kind(block) for block in blocks).values()),
            time.perf_counter() - begun,
            _fault(logits),
        )
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Row(model_type, name, seconds=time.perf_counter() - begun, error=said[:200])


def rows() -> list[tuple[str, str]]:
    """Every decoder's twins: (model_type, name)."""
    return [(model_type, name) for model_type in sources.decoders() for name in sources.twins(model_type)]


def stack(module: nn.Module) -> tuple[str, nn.ModuleList]:
    """Path and list of the decoder's blocks: of the outermost module lists, the one that holds most parameters.

    Raises:
        LookupError: the model has no list of several modules.
    """
    lists = [(path, part) for path, part in module.named_modules() if isinstance(part, nn.ModuleList) and len(part) > 1]
    decoder = next((path for path, part in module.named_modules() if part is module.get_decoder()), "")
    if not lists:
        raise LookupError(f"{type(module).__name__} has no list of blocks")
    inner = [(path, part) for path, part in lists if path.startswith(decoder)]
    return min(inner or lists, key=lambda item: (item[0].count("."), -sum(p.numel() for p in item[1].parameters())))


def kind(block: nn.Module) -> Hashable:
    """What two blocks share that are alike: their modules' classes, flags and names of types, parameters' shapes."""
    found: list[Hashable] = []
    for path, module in block.named_modules():
        flags = [
            (name, value)
            for name, value in vars(module).items()
            if isinstance(value, (bool, str)) or (isinstance(value, int) and ("window" in name or "chunk" in name))
        ]
        shapes = [(name, tuple(p.shape)) for name, p in module.named_parameters(recurse=False)]
        found.append((path, type(module).__name__, tuple(sorted(flags)), tuple(shapes)))
    return tuple(found)


def _fault(logits: torch.Tensor) -> str | None:
    if not torch.isfinite(logits).all():
        return "the logits are not finite"
    return None if logits.std() > 0.02 else "the logits hardly differ"
