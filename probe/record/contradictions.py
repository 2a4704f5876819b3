"""What a family module declares against what a run of the same checkpoint shows.

Both are read on the same prompt. A value that both serve on a block must be the same tensor; where it is not, one of
the two names the wrong place, and the probe says where each of them looked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ..measure.run import Run


MASKED = 1e4
"""A masked score is larger than this, and says nothing of the size of the others."""


def contradictions(run: Run) -> Iterator[str]:
    """One sentence for each value of the text model that is declared at one tensor and derived at another.

    Raises:
        ProbeError: nothing can be derived from the checkpoint.
    """
    from ..derive.default import derived
    from ..standard import StandardizedTransformer
    from ..standard.trace import Key, read_all

    loaded = run.model.loaded
    default = StandardizedTransformer(loaded, family=derived(loaded))
    places = {
        Key(label, block, name): value
        for label, block, host in default.hosts()
        for name, value in host.standard_values().items()
    }
    declared = {
        Key(label, block, name): value
        for label, block, host in run.model.hosts()
        for name, value in host.standard_values().items()
    }
    shared = {key for key in places if key in run.readings}
    readings = read_all(default, run.inputs, lambda key: key in shared)
    seen: set[tuple[str, str]] = set()
    for key, read in readings.items():
        if (key.host, key.name) in seen or _same(read, run.readings[key]):
            continue
        seen.add((key.host, key.name))
        where = key.host if key.block is None else key.host.replace("[i]", f"[{key.block}]")
        yield (
            f"{where}.{key.name} is declared at {declared[key].location}, and derived from the run it is at "
            f"{places[key].location}, which is another tensor"
        )


def _same(derived: object, declared: object) -> bool:
    if not isinstance(derived, torch.Tensor) or not isinstance(declared, torch.Tensor):
        return derived == declared
    if derived.numel() != declared.numel():
        return False
    left, right = derived.float(), declared.reshape(derived.shape).float()
    sizes = right.abs()
    scale = float(sizes[sizes < MASKED].max()) if bool((sizes < MASKED).any()) else 1.0
    return torch.allclose(left, right, rtol=1e-5, atol=1e-6 * scale)
