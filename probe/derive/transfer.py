"""The default family of a build from a config: nothing runs on meta, so what a twin's run showed is carried over.

A block of the checkpoint takes over the hosts of the twin's block that is built like it. A size carries over as the
config entry or the module's attribute that says the same on the twin; a size that none says is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from .. import registry
from ..checkpoints import Loaded, targets
from ..errors import ProbeError
from .declare import BlockDraft, Draft, HostDraft
from .family import default_family
from .likeness import flags, signature
from .speakers import said, speaker
from .twins import Twin, twin


def transferred(loaded: Loaded) -> Any:
    """The default family of a build from a config, from the twin of its family that is built like it; of several, from
    the one whose config differs least.

    Raises:
        ProbeError: no twin has its class and a block like each of its blocks.
    """
    family = loaded.target.family
    candidates: list[tuple[int, Draft]] = []
    for target in targets(family):
        if target.kind != "tiny":
            continue
        other = twin(family, target.id)
        drafted = None if type(other.loaded.module) is not type(loaded.module) else _moved(other, loaded.module)
        if drafted is not None:
            _, differs = flags(loaded.module.config, other.loaded.module.config)
            candidates.append((len(differs), drafted))
    if candidates:
        known = registry.get(family)
        _, likest = min(candidates, key=lambda candidate: candidate[0])
        return default_family(known.name, known.title, known.checkpoints, loaded.module, likest)
    raise ProbeError(
        f"No tiny twin of {family} has the class {type(loaded.module).__name__} and a block like each of those of "
        f"{loaded.target.id}, so nothing that a run showed carries over to it: add a twin of its kind to "
        "families/twins.json."
    )


def _moved(twin: Twin, model: torch.nn.Module) -> Draft | None:
    """The twin's draft on the larger model; None where a block of it is built like none of the twin's."""
    draft: Draft = twin.family.draft
    try:
        stack = model.get_submodule(draft.container)
    except AttributeError:
        return None
    first: dict[Any, BlockDraft] = {}
    for block in draft.blocks:
        first.setdefault(signature(twin.loaded.module.get_submodule(block.path)), block)
    blocks = []
    for index, module in enumerate(stack.children()):
        like = first.get(signature(module))
        if like is None or not all(_has(module, host.path.removeprefix(like.path).lstrip(".")) for host in like.hosts):
            return None
        blocks.append(_block(twin.loaded.module, model, like, index, f"{draft.container}.{index}"))
    return replace(draft, blocks=blocks)


def _has(module: torch.nn.Module, path: str) -> bool:
    """Whether there is a module at a path, of which the lists on the way may be shorter than the twin's."""
    try:
        module.get_submodule(path)
    except AttributeError:
        return False
    return True


def _block(twin: torch.nn.Module, model: torch.nn.Module, like: BlockDraft, index: int, path: str) -> BlockDraft:
    hosts = []
    for host in like.hosts:
        at = path + host.path.removeprefix(like.path)
        sizes = {
            name: found
            for name, size in host.sizes.items()
            if (found := said(name, size, speaker(twin, host.path), speaker(model, at))) is not None
        }
        hosts.append(
            HostDraft(at, host.role, host.name, host.native, host.values, sizes, host.aliases, host.recurrence)
        )
    return BlockDraft(index, path, hosts)
