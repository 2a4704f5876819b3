"""Whose return a module that holds a matrix is called with, and which returns are written to in place afterwards.

Told by the memory that tensors share in one forward: everything that modules return is kept while it lasts, so that no
memory is used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .sites import Site

Key = tuple[int, int]


class Flow:
    """The returns of one forward."""

    def __init__(self) -> None:
        self._givers: dict[Key, tuple[Site, torch.Tensor, int]] = {}
        self._every: list[tuple[Site, torch.Tensor, int]] = []

    def gives(self, site: Site, out: Any) -> None:
        """Notes what a module returned; what an inner module returned before stays that one's."""
        for tensor in _tensors(out):
            self._every.append((site, tensor, tensor._version))
            self._givers.setdefault(_key(tensor), self._every[-1])

    def reads(self, site: Site, module: torch.nn.Module, given: tuple[Any, ...]) -> str | None:
        """The path of the module whose return, or rows of it, a module that holds a matrix was called with."""
        if not any(p.ndim > 1 for p in module.parameters(recurse=False)):
            return None
        tensor = next((each for each in given if isinstance(each, torch.Tensor)), None)
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return None
        found = self._givers.get(_key(tensor))
        if found is not None and found[2] == tensor._version:
            return found[0].path
        return self._rows(site, tensor)

    def _rows(self, site: Site, tensor: torch.Tensor) -> str | None:
        """The last return of the same block whose rows these are, as experts are given those of their tokens."""
        rows = tensor.reshape(-1, tensor.shape[-1])
        for giver, made, version in reversed(self._givers.values()):
            same = (giver.block, giver.vision, made.shape[-1]) == (site.block, site.vision, rows.shape[-1])
            if not same or made._version != version:
                continue
            whole = made.reshape(-1, made.shape[-1])
            if made.dtype == rows.dtype and len(rows) <= len(whole) and _among(rows, whole):
                return giver.path
        return None

    def rewritten(self) -> set[str]:
        """Paths of the modules whose return has been written to since."""
        return {site.path for site, tensor, version in self._every if tensor._version != version}


def _tensors(out: Any) -> list[torch.Tensor]:
    if isinstance(out, dict):
        out = tuple(out.values())
    return [each for each in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(each, torch.Tensor)]


def _key(tensor: torch.Tensor) -> Key:
    return tensor.data_ptr(), tensor.numel()


def _among(rows: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether every row is one of the others, bit by bit."""
    return set(_bytes(rows)) <= set(_bytes(whole))


def _bytes(rows: torch.Tensor) -> Iterator[bytes]:
    return (row.tobytes() for row in rows.detach().contiguous().view(torch.uint8).cpu().numpy())
