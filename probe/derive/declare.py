"""What a derivation declares: the values of each host, the names of its modules, and the sizes measured on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..values.observed import ObservedValue
from ..values.value import StandardValue, Unserved


@dataclass(frozen=True)
class Declared:
    """One value of one host.

    Attributes:
        layout: name of its layout.
        at: its location from the host; None where no place of the forward holds it.
        description: one phrase.
        axes: how it is held, where that is not as the layout says.
        options: further arguments of the standard value (``copy``, ``live``).
        reason: why there is none, where ``at`` is None; else what a load is refused with that has none there.
        observed: whether it is an observed value, which is read only.
    """

    layout: str
    at: str | None
    description: str
    axes: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    reason: str | None = None
    observed: bool = False

    def value(self) -> StandardValue:
        if self.at is None:
            return Unserved(self.reason or "", self.description)
        made = ObservedValue if self.observed else StandardValue
        value = made(self.layout, self.at, self.description, axes=self.axes, **dict(self.options))
        value.condition = self.reason
        return value


Values = dict[str, Declared]


@dataclass
class HostDraft:
    """One host: the role it plays, and what it serves.

    Attributes:
        path: native path from the model.
        role: ``layer``, ``attention``, ``mixer``, ``mlp`` or ``moe``.
        name: standard name from the block, the native one where it has none; empty for the block.
        native: native path from the block.
        recurrence: of a mixer, what the function that runs its recurrence computes, a key of `kernels.KINDS`.
    """

    path: str
    role: str
    name: str
    native: str
    values: Values = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """Native child path -> standard name, from the host."""
    recurrence: str | None = None


@dataclass
class BlockDraft:
    """One block with its hosts, itself first."""

    index: int
    path: str
    hosts: list[HostDraft] = field(default_factory=list)


@dataclass
class Draft:
    """Everything derived about one model.

    Attributes:
        container: native path of the list of blocks.
        rename: native path from the model -> standard name, of the parts that are no blocks.
        root: values of the whole model that are elsewhere than usual.
        readout: paths of the modules that the last block's output passes through, the head last; none where other
            arithmetic stands between them.
        leaving: what the first of them takes is times the last block's output.
        entering: what the head's input is times the output of the module before it.
        scale, cap: what the model does to the head's output: ``scale * x``, or ``cap * tanh(x / cap)``.
    """

    container: str
    rename: dict[str, str]
    blocks: list[BlockDraft]
    root: Values = field(default_factory=dict)
    readout: tuple[str, ...] = ()
    leaving: float = 1.0
    entering: float = 1.0
    scale: float = 1.0
    cap: float | None = None

    def first_size(self, name: str) -> int | None:
        """A size of the first host that has it."""
        return next((h.sizes[name] for block in self.blocks for h in block.hosts if name in h.sizes), None)
