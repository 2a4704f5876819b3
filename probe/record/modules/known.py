"""Which standard value a tensor is: it is compared with everything that the run read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch

from ...experiments.answers import tolerance
from ...measure.run import Run
from ...standard.stack import same
from ...standard.trace import Key


class Known:
    """The values of a run, to be found by what they hold.

    A tensor with all numbers alike says nothing of itself, so it is no value.
    """

    def __init__(self, run: Run) -> None:
        self._found: dict[tuple[int | None, int], list[tuple[Key, torch.Tensor]]] = defaultdict(list)
        self._logits: dict[int | None, list[tuple[Key, torch.Tensor]]] = defaultdict(list)
        self._close = tolerance(run)
        self._places: dict[Key, tuple[str, str, int | str | None]] = {}
        for key, held in run.readings.items():
            if isinstance(held, torch.Tensor) and held.numel():
                self._found[_stack(key), held.numel()].append((key, held))
                if key.name == "router_logits" and held.is_floating_point():
                    self._logits[_stack(key)].append((key, held))
        for label, block, host in run.model.hosts():
            for name, value in host.standard_values().items():
                key = Key(label, block, name)
                if key in run.readings:
                    self._places[key] = value.location.plain(host, run.model)

    def all(self, tensor: torch.Tensor, block: int | None, vision: bool = False) -> Iterator[Key]:
        """The values that a tensor equals, up to its axes, on a block or outside of all; in the order of a forward.

        Args:
            tensor: what is sought.
            block: the block it was seen in; None outside the blocks.
            vision: whether that is a block of the vision tower.
        """
        if tensor.numel() < 2 or tensor.is_complex() or bool((tensor == tensor.flatten()[0]).all()):
            return
        stack = block if block is None or not vision else -1 - block
        for key, held in self._found.get((stack, tensor.numel()), ()):
            if held.dtype.is_floating_point == tensor.dtype.is_floating_point and same(
                held.reshape(-1), tensor.detach().reshape(-1).to(held.device), self._close
            ):
                yield key

    def one(
        self, tensor: torch.Tensor, block: int | None, path: str, element: int | str | None, vision: bool = False
    ) -> str | None:
        """The value that a module's return is: the one that is read there, else the first that it equals."""
        found = list(self.all(tensor, block, vision))
        here = [key for key in found if self._places[key] in ((path, "out", element), (path, "out", None))]
        return name(here[0] if here else found[0]) if found else None

    def of_logits(self, tensor: torch.Tensor, block: int) -> tuple[Key, str] | None:
        """The router's logits of a block, and what a tensor is of them: their softmax, their sigmoid, or the first of
        them; None for none of these.
        """
        if not tensor.is_floating_point() or not tensor.ndim:
            return None
        sought, width = tensor.detach().float().reshape(-1), tensor.shape[-1]
        for key, held in self._logits.get(block, ()):
            logits = held.float()
            made = {"softmax(router_logits)": logits.softmax(-1), "sigmoid(router_logits)": logits.sigmoid()}
            if width < logits.shape[-1]:
                made = {f"router_logits[..., :{width}]": logits[..., :width]}
            for said, scores in made.items():
                if scores.numel() == len(sought) and same(scores.reshape(-1), sought, self._close):
                    return key, said
        return None


def name(key: Key) -> str:
    """A value's host and name."""
    return f"{key.host}.{key.name}"


def _stack(key: Key) -> int | None:
    """The block's index, below zero on the vision tower; None outside the blocks."""
    if key.block is None:
        return None
    return -1 - key.block if key.host.startswith("model.vision") else key.block
