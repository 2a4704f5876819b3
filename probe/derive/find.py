"""Finding where a tensor stands: from a tensor that means something to the location that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from nnsight.intervention.envoy import Envoy

from ..values.axes import Axes, forms
from ..values.layouts import LAYOUTS
from ..values.location import Location
from .sites import Recording, Site


@dataclass(frozen=True)
class Found:
    """A site that holds a value, and in which axes it holds it."""

    site: Site
    axes: Axes
    rank: int
    """How far the axes are from the layout's: 0 where they are the same."""

    def at(self, host: str) -> str:
        """The location of the value, from the module at path ``host``."""
        return location(self.site, host)

    @property
    def held(self) -> str | None:
        """How the value is held, where that is not as its layout says."""
        return None if self.axes.plain else str(self.axes)


def location(site: Site, host: str) -> str:
    """The location of a site from the module at path ``host``: ``parent`` climbs, operations follow ``source``."""
    ours, theirs = _parts(host), _parts(site.module)
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    steps = ["parent"] * (len(ours) - shared) + [spelled(name) for name in theirs[shared:]]
    for operation in site.steps:
        steps += ["source", operation]
    if site.side == "inputs" and site.index == (0, 0):
        return ".".join([*steps, "input"])
    return ".".join([*steps, site.side]) + "".join(f"[{key!r}]" for key in site.index)


def spelled(name: str) -> str:
    """A child's name on its envoy: one that nnsight serves a value under has a prefix there."""
    served = inspect.isdatadescriptor(getattr(Envoy, name, None))
    return f"{Envoy.OVERLOAD_PREFIX}{name}" if served else name


def _native(step: str) -> str:
    """The child's own name, of one that is `spelled`."""
    bare = step.removeprefix(Envoy.OVERLOAD_PREFIX)
    return bare if spelled(bare) == step else step


def place(host: str, at: str) -> tuple[str, tuple[str, ...]]:
    """The module and the operations in it that a location names, from the module at path ``host``."""
    steps = list(Location.parse(at).steps)
    first = steps.index("source") if "source" in steps else len(steps)
    path = _parts(host)
    for step in steps[:first]:
        if step == "parent":
            path.pop()
        else:
            path.append(_native(step))
    return ".".join(path), tuple(step for step in steps[first:] if step != "source")


def _parts(path: str) -> list[str]:
    return path.split(".") if path else []


Preference = Callable[[Site], float]


def find(
    recording: Recording,
    sites: Iterable[Site],
    tensor: torch.Tensor,
    layout: str,
    *,
    prefer: Preference | None = None,
) -> Found | None:
    """The site that holds a tensor.

    Args:
        recording: the forward the sites are of.
        sites: where to look.
        tensor: in the axes of ``layout``.
        layout: name of the layout.
        prefer: the site with the largest value is taken among those that hold the tensor in the plainest way; the
            last one of the forward where it is not given.
    """
    best: tuple[int, float, Found] | None = None
    dims = LAYOUTS[layout].dims
    marks = _marks(tensor)
    for site in sites:
        if site.tensor.numel() != tensor.numel() or not _alike(_marks(site.tensor), marks) or not recording.once(site):
            continue
        for rank, axes in _ways(site.tensor, dims):
            if best is not None and rank > best[0]:
                break
            if _holds(site.tensor, axes, tensor):
                score = prefer(site) if prefer else site.order
                if best is None or (rank, -score) < (best[0], -best[1]):
                    best = (rank, score, Found(site, axes, rank))
                break
    return best[2] if best else None


def _ways(held: torch.Tensor, dims: tuple[str, ...]) -> Iterator[tuple[int, Axes]]:
    """Every way in which a tensor may hold these axes with its rank, the plainest first; an axis of size 1 may be more
    than the layout has."""
    every = forms(dims)
    yield from enumerate(every)
    for axis in (axis for axis, size in enumerate(held.shape) if size == 1):
        yield from ((len(every) + rank, axes.with_unit(axis)) for rank, axes in enumerate(every))


def _holds(held: torch.Tensor, axes: Axes, tensor: torch.Tensor) -> bool:
    sizes = dict(zip(axes.dims, tensor.shape, strict=True))
    wanted = [_product(sizes.get(name, 1) for name in group) for group in axes.groups]
    return list(held.shape) == wanted and torch.equal(axes.view(held, sizes), tensor)


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _marks(tensor: torch.Tensor) -> tuple[float, float]:
    """Two numbers that do not depend on the order of the elements."""
    found: tuple[float, float] | None = getattr(tensor, "_marks", None)
    if found is None:
        numbers = tensor.double().clamp(-1e6, 1e6)
        found = (float(numbers.sum()), float(numbers.square().sum()))
        tensor.__dict__["_marks"] = found
    return found


def _alike(left: tuple[float, float], right: tuple[float, float]) -> bool:
    return all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(left, right, strict=True))
