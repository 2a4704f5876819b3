"""The default family: names and values of a model whose family has no module, taken from a run of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..values.hosts import Attention, Host, Layer, Mlp
from ..values.readout import Readout
from ..values.value import StandardValue
from .declare import BlockDraft, Draft, HostDraft

SIZES = ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim", "intermediate_size", "num_experts", "top_k")


class DerivedHost(Host):
    """A host whose values and sizes were derived; each has a class of its own below this one."""

    measured: Mapping[str, int] = {}

    @property
    def layout_heads(self) -> int | None:
        return self.measured.get("num_heads")


def _size(name: str) -> property:
    def read(self: DerivedHost) -> int | None:
        return self.measured.get(name)

    return property(read)


@dataclass(frozen=True)
class DefaultFamily:
    """What a family module declares, of a family that has none.

    Attributes:
        RENAME: native paths and their standard names.
        ENVOYS: which host serves the values of each native path.
        ROOT: values of the whole model that are elsewhere than usual.
        READOUT: from the last block to the logits.
        draft: all that was derived.
    """

    name: str
    TITLE: str
    CHECKPOINTS: tuple[str, ...]
    RENAME: Mapping[str | type, str]
    ENVOYS: Mapping[str, type[Host]]
    ROOT: Mapping[str, StandardValue]
    READOUT: Readout
    draft: Draft


def default_family(name: str, title: str, checkpoints: tuple[str, ...], model: torch.nn.Module, draft: Draft) -> Any:
    """The default family of a model, from its draft."""
    return DefaultFamily(
        name=name,
        TITLE=title,
        CHECKPOINTS=checkpoints,
        RENAME=rename(model, draft),
        ENVOYS=envoys(model, draft),
        ROOT={name: declared.value() for name, declared in draft.root.items()},
        READOUT=Readout(draft.readout, draft.leaving, draft.entering, draft.scale, draft.cap),
        draft=draft,
    )


def envoys(model: torch.nn.Module, draft: Draft) -> dict[str, type[Host]]:
    """A host class for each native path; paths whose hosts are alike share one."""
    made: dict[Any, type[Host]] = {}
    found: dict[str, type[Host]] = {}
    for block in draft.blocks:
        for host in block.hosts:
            module = model.get_submodule(host.path)
            native = type(module).__name__
            for name in [name for name in host.values if hasattr(module, name)]:
                del host.values[name]  # the module has something of that name, which stays reachable
            served = tuple(sorted(host.values.items())), tuple(sorted(host.sizes.items()))
            key = (native, host.role, host.recurrence, *served)
            if key not in made:
                made[key] = _host_class(native, host)
            found[f"model.{host.path}"] = made[key]
    return found


def _host_class(native: str, host: HostDraft) -> type[Host]:
    names = host.values if host.role == "mixer" else sorted(host.values, key=_place)
    members: dict[str, Any] = {name: host.values[name].value() for name in names}
    members |= {name: _size(name) for name in SIZES if name in host.sizes}
    members["measured"] = dict(host.sizes)
    members["role"], members["recurrence"] = host.role, host.recurrence
    members["__doc__"] = f"The values of {native}, as derived."
    return type(re.sub(r"\W", "", native), (DerivedHost,), members)


_BEFORE = [*Layer.standard_values(), *Attention.standard_values(), *Mlp.standard_values()]
_LAST = ("attention_output", "routed_output", "shared_expert_output", "mlp_output", "layer_output")


def _place(name: str) -> tuple[int, int]:
    """Where a value stands in a forward pass: what most hosts have in their order, what few have, what is added.

    A mixer's values are in the order of its own forward already.
    """
    if name in _LAST:
        return 2, _LAST.index(name)
    return (0, _BEFORE.index(name)) if name in _BEFORE else (1, 0)


def rename(model: torch.nn.Module, draft: Draft) -> dict[str | type, str]:
    """Native paths and their standard names: of the parts, of each block's hosts, and of what stands in these."""
    found: dict[str | type, str] = dict(draft.rename.items())
    names: dict[str, set[str]] = {}
    for block in draft.blocks:
        for host in block.hosts[1:]:
            names.setdefault(host.native, set()).add(host.name)
    for block in draft.blocks:
        for host in block.hosts[1:]:
            inner = host.name.rpartition(".")[0]
            if not inner and host.native != host.name:
                found |= _host_name(model, draft, block, host, alone=len(names[host.native]) == 1)
            for child, alias in host.aliases.items():
                if child != alias and not hasattr(model.get_submodule(host.path), alias):
                    found[f"{host.native}.{child}"] = f"{host.native}.{alias}"
    return found


def _host_name(
    model: torch.nn.Module, draft: Draft, block: BlockDraft, host: HostDraft, *, alone: bool
) -> Mapping[str | type, str]:
    """The name of a host: by its path where that means the same in every block, by its class elsewhere."""
    if alone:
        return {host.native: host.name}
    if "." not in host.native:
        return {type(model.get_submodule(host.path)): host.name}
    prefix = f"{draft.container}.{block.index}"
    return {f"{prefix}.{host.native}": f"{prefix}.{host.name}"}
