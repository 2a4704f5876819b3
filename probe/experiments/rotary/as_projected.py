"""Which numbers of what a projection gives turn as a pair, which way, and whether only a head's last ones do.

Queries and keys may stand in another order than the numbers that their projection gives: a rotation of neighbours can
write its results into two halves. Told by gradients, from each dimension of a turned query or key to the projection's
output: one number reaches a dimension that does not turn, two reach one that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.extra import BRIEF, CANNOT, attentions, decoder, token_ids
from ...instruments.projected import linear_paths
from ...instruments.rows import removed
from ...instruments.tap import Tap
from ...measure.run import Run
from ...schema import Fact
from ..answers import explain
from ..base import Measured
from .turning import rotaries

SIDES = ("queries", "keys")
PLACED = {
    "interleaved": "numbers 2i and 2i + 1 turn as a pair",
    "halves": "a number turns with its partner in the other half of the part that turns",
}
"""How the pairs of a projection's output lie."""


def pair_facts(run: Run) -> list[Fact]:
    """Those that apply."""
    return [*_pairs(run), *_direction(run), *_last_part(run)]


def _last_part(run: Run) -> list[Fact]:
    """Whether only the last dimensions of a head turn, on every block where any do."""
    turned = [rotary for rotary in rotaries(run) if rotary is not None and rotary.turning]
    if not turned or not all(rotary.extent == "trailing" for rotary in turned):
        return []
    sizes = {(len(rotary.turning), rotary.width) for rotary in turned}
    measured: Measured = {}
    entry = None
    if len(sizes) == 1:
        [(turning, width)] = sizes
        measured = {"turning": turning, "width": width}
        entry = explain(run, measured, {"turning": ["qk_rope_head_dim"]}).get("turning")
    many = f", as many as `{entry}` says" if entry else f", {turning} of {width}" if measured else ""
    said = f"Of a head only the last dimensions turn with the position{many}; those before them carry none."
    return [Fact(name="rotary_part", label="Last part of a head turns", value=True, measured=measured, statement=said)]


def _direction(run: Run) -> list[Fact]:
    """Whether pairs turn backwards; nothing where they turn as usual."""
    turned = [rotary for rotary in rotaries(run) if rotary is not None and rotary.style is not None]
    if not turned or not all(rotary.backwards for rotary in turned):
        return []
    said = (
        "Pairs turn backwards: at position p the pair (x, y) becomes (x cos pθ + y sin pθ, y cos pθ − x sin pθ), where "
        "elsewhere it is (x cos pθ − y sin pθ, y cos pθ + x sin pθ)."
    )
    return [Fact(name="rotary_direction", label="Direction of rotary", value=-1, statement=said)]


def _pairs(run: Run) -> list[Fact]:
    """Where queries or keys hold the pairs otherwise than their projection gives them."""
    block = next((i for i, rotary in enumerate(rotaries(run)) if rotary is not None and rotary.style is not None), None)
    if block is None:
        return []
    held = rotaries(run)[block]
    assert held is not None
    try:
        reached = _reached(run, block)
    except CANNOT:
        return []
    found: dict[str, tuple[str, str]] = {}
    for side, (path, places) in reached.items():
        style = _style(places)
        if style is not None and style != held.style:
            found[side] = path, style
    if not found:
        return []
    styles = {style for _, style in found.values()}
    if len(styles) > 1:
        return []
    [style] = styles
    paths = list(dict.fromkeys(f"`{path}`" for path, _ in found.values()))
    values = " and ".join(f"`attention_{side}`" for side in found)
    apart = "half of that part apart" if held.style == "halves" else "side by side"
    said = (
        f"In what {' and '.join(paths)} give{'s' if len(paths) == 1 else ''}, {PLACED[style]}; in {values} the two "
        f"stand {apart}: turning also moves them."
    )
    measured: Measured = {"projections": [path for path, _ in found.values()], "pairs": style, "in_values": held.style}
    return [Fact(name="rotary_reorders", label="Order of rotary pairs", value=1, measured=measured, statement=said)]


def _style(places: list[tuple[int, ...]]) -> str | None:
    """How the pairs lie in a projection's output; None where they are no pairs, or lie otherwise."""
    pairs = sorted({pair for pair in places if len(pair) == 2})
    numbers = sorted({number for pair in pairs for number in pair})
    if len(pairs) < 2 or len(numbers) != 2 * len(pairs) or numbers[-1] - numbers[0] + 1 != len(numbers):
        return None
    if all(right == left + 1 for left, right in pairs):
        return "interleaved"
    return "halves" if all(right == left + len(pairs) for left, right in pairs) else None


class _Kept(Tap):
    """A tap that keeps queries and keys of the last attention that ran with the graph behind them."""

    def __init__(self, envoys: Any) -> None:
        super().__init__(envoys)
        self.made: dict[str, torch.Tensor] = {}

    def _keep(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: torch.Tensor) -> None:
        super()._keep(query, key, value, heads)
        self.made = {"queries": query, "keys": key}


def _reached(run: Run, block: int) -> Mapping[str, tuple[str, list[tuple[int, ...]]]]:
    """For queries and keys the projection behind them, and of its output the numbers that reach each dimension of the
    first head at the last position; without a side whose numbers go through anything but a rotation.
    """
    attention = attentions(run)[block]
    assert attention is not None
    leaves: dict[str, torch.Tensor] = {}

    def leaf(path: str) -> Any:
        def hook(_: torch.nn.Module, __: Any, out: Any) -> Any:
            if isinstance(out, torch.Tensor):
                leaves[path] = out.detach().requires_grad_()
                return leaves[path]
            return None

        return hook

    tap = _Kept([attention if index == block else None for index in range(len(run.text))])
    ids = token_ids(run, BRIEF)
    with ExitStack() as stack:
        for path in linear_paths(attention):
            stack.enter_context(removed(attention._module.get_submodule(path).register_forward_hook(leaf(path))))
        stack.enter_context(tap)
        stack.enter_context(torch.enable_grad())
        decoder(run)(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        return _gradients(tap.made, leaves)


def _gradients(
    made: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]
) -> dict[str, tuple[str, list[tuple[int, ...]]]]:
    found = {}
    for side in SIDES:
        head = made[side][0, 0, -1]
        behind: dict[str, list[tuple[int, ...]]] = {}
        for number in head:
            given = torch.autograd.grad(number, list(leaves.values()), retain_graph=True, allow_unused=True)
            for path, gradient in zip(leaves, given, strict=True):
                if gradient is not None and gradient.shape[1] == BRIEF:
                    behind.setdefault(path, []).append(tuple(gradient[0, -1].flatten().nonzero().flatten().tolist()))
        turning = {path: places for path, places in behind.items() if any(len(each) == 2 for each in places)}
        if len(turning) == 1 and all(len(each) <= 2 for each in next(iter(turning.values()))):
            found[side] = next(iter(turning.items()))
    return found
