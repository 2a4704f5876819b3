"""What is read off queries, scores, masks and caches that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from probe.experiments.attention.looked import seen_by
from probe.experiments.attention.scores import Seen, fit
from probe.experiments.attention.support import Support, classify
from probe.experiments.calls.cache import contents, growing
from probe.experiments.rotary.turning import rotary

CLOSE = 2e-4
SHIFTS = (0, 1, 16, 1024)
WIDTH = 16


def turned(pairs: list[tuple[int, int]], base: float = 100.0, gains: torch.Tensor | None = None) -> torch.Tensor:
    """Queries ``[shifts, heads, samples, width]`` of which these pairs turn, then multiplied by ``gains``."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(3, 5, WIDTH, generator=generator, dtype=torch.float64)
    rows = given.expand(len(SHIFTS), -1, -1, -1).clone()
    for place, (left, right) in enumerate(pairs):
        angle = base ** (-place / len(pairs)) * torch.tensor(SHIFTS, dtype=torch.float64)[:, None, None]
        rows[..., left] = given[..., left] * angle.cos() - given[..., right] * angle.sin()
        rows[..., right] = given[..., left] * angle.sin() + given[..., right] * angle.cos()
    return (rows if gains is None else rows * gains).float()


HALVES = [(i, i + 8) for i in range(8)]
NEIGHBOURS = [(i, i + 1) for i in range(0, WIDTH, 2)]


@pytest.mark.parametrize(
    ("pairs", "extent", "style"),
    [
        (HALVES, "whole", "halves"),
        (NEIGHBOURS, "whole", "interleaved"),
        ([(i, i + 4) for i in range(4)], "leading", "halves"),
        (NEIGHBOURS[:4], "leading", "interleaved"),
        (HALVES[:3], "both halves", "halves"),
        ([(i, i + 3) for i in range(10, 13)], "trailing", "halves"),
        (NEIGHBOURS[5:], "trailing", "interleaved"),
    ],
)
def test_pairs_and_extent_of_a_rotation(pairs: Any, extent: str, style: str) -> None:
    found = rotary(turned(pairs), SHIFTS, CLOSE)
    assert (found.extent, found.style) == (extent, style)
    assert sorted(found.turning) == sorted(index for pair in pairs for index in pair)
    speeds = [100.0 ** (-place / len(pairs)) for place in range(len(pairs))]
    assert list(found.frequencies) == pytest.approx(speeds, rel=1e-3)


def test_a_gain_behind_the_rotation_makes_an_ellipse_that_is_still_a_rotation() -> None:
    gains = torch.rand(3, 1, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    found = rotary(turned(HALVES, gains=gains), SHIFTS, CLOSE)
    assert (found.extent, found.style) == ("whole", "halves")


def test_a_factor_of_the_position_is_no_rotation() -> None:
    factors = 1 + 0.1 * torch.arange(len(SHIFTS), dtype=torch.float64)[:, None, None, None]
    assert rotary((turned([]) * factors).float(), SHIFTS, CLOSE).extent == "none"
    both = rotary((turned(HALVES) * factors).float(), SHIFTS, CLOSE)
    assert (both.extent, both.style) == ("whole", "halves")


def test_a_permutation_is_no_rotation() -> None:
    rows = turned([])
    rows[1:] = rows[1:, ..., torch.randperm(WIDTH, generator=torch.Generator().manual_seed(3))]
    assert rotary(rows, SHIFTS, CLOSE).style is None


def attention() -> Seen:
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(1, 4, 20, 8, generator=generator) for _ in range(3))
    products = queries @ keys.transpose(-1, -2)
    hidden = ~torch.ones(20, 20, dtype=torch.bool).tril()
    scores = (products * 0.3).masked_fill(hidden, -1e30)
    return Seen(products, scores, scores.softmax(-1), values, values, None, 8)


def added(block: Seen, number: torch.Tensor) -> Seen:
    return replace(block, scores=block.scores + number)


PLACE = torch.arange(20.0)
DISTANCE = PLACE[:, None] - PLACE[None]
HEADS = torch.tensor([0.5, 0.25, 0.125, 0.1])[:, None, None]


def test_forms_of_scores() -> None:
    block = attention()
    plain = fit(block, CLOSE)
    assert plain.kind == "product" and plain.scale == pytest.approx(0.3, rel=1e-4)
    assert fit(added(block, torch.randn(1, 4, 20, 1)), CLOSE).kind == "product"
    sloped = fit(added(block, -HEADS * DISTANCE), CLOSE)
    assert sloped.kind == "slope" and sloped.slopes == pytest.approx([-0.5, -0.25, -0.125, -0.1], rel=1e-3)
    assert fit(added(block, -HEADS * PLACE), CLOSE).kind == "slope"
    assert fit(added(block, HEADS * DISTANCE.clamp_min(0).sqrt()), CLOSE).kind == "distance"
    assert fit(added(block, HEADS * (PLACE * 7).sin()), CLOSE).kind == "key"
    assert fit(added(block, HEADS * (PLACE[:, None] * PLACE[None]).sin()), CLOSE).kind == "other"
    capped = torch.where(block.visible, 2.5 * (block.products * 0.3 / 2.5).tanh(), block.scores)
    found = fit(replace(block, scores=capped), CLOSE)
    assert found.kind == "capped" and found.cap == pytest.approx(2.5, rel=1e-3)


def test_shapes_of_masks() -> None:
    query, key = torch.arange(20)[:, None], torch.arange(20)[None]
    causal = key <= query
    assert classify(causal) == Support("full")
    assert classify(causal & (query - key < 6)) == Support("sliding", 6)
    assert classify(causal & (query // 6 == key // 6)) == Support("chunked", 6)
    assert classify(causal | (key < 4)).kind == "two-way"
    assert classify(causal & (key % 3 != 1)).kind == "other"


def test_a_share_lost_in_rounding_was_seen_and_a_masked_one_was_not() -> None:
    scores = torch.tensor([[[0.0, -200.0, -1e4, -3e38]]])
    assert seen_by(scores.softmax(-1), scores).tolist() == [[[True, True, False, False]]]


def test_what_a_cache_holds() -> None:
    class Layer:
        def __init__(self, **held: torch.Tensor) -> None:
            self.__dict__.update(held)

    class Cache:
        layers = (
            Layer(keys=torch.zeros(1, 2, 4, 8), values=torch.zeros(1, 2, 4, 8)),
            Layer(keys=torch.zeros(1, 1, 4, 8), values=torch.zeros(1, 1, 4, 2), indexer_keys=torch.zeros(1, 4, 3)),
            Layer(conv_states=torch.zeros(1, 6, 3)),
        )

    whole, indexed, state, missing = contents(Cache(), 4)
    assert (whole.size, whole.positions, whole.state) == (2 * 64 * 4, 4, 0)
    assert (indexed.size, indexed.keys) == ((32 + 8 + 12) * 4, (1, 1, 4, 8))
    assert (state.size, state.state) == (0, 72)
    assert (missing.size, missing.state) == (0, 0)
    assert contents([torch.zeros(2, 3)], 2)[0].state == 24


def test_what_grows_in_a_cache_by_an_entry_a_position_and_otherwise() -> None:
    def cache(positions: int) -> Any:
        keys = torch.zeros(1, 2, positions, 8)
        held = {"keys": keys, "values": keys, "chosen": torch.zeros(3, 1, positions), "state": torch.zeros(1, 4, 2)}
        layer = SimpleNamespace(**held, compressed=torch.zeros(1, positions // 4, 6))
        return SimpleNamespace(layers=[layer], sums=[torch.zeros(1, 16)])

    [held] = contents(cache(4), 1, growing(cache(4), cache(13)))
    assert (held.size, held.rest, held.state) == ((2 * 64 + 12) * 4, 6 * 4, (8 + 16) * 4)
