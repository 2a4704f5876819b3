"""Pictures of twins whose answers are known by construction, and of twins changed by hand behind the config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments import pictures, run_all
from probe.experiments.attention.scores import Fit
from probe.experiments.base import STRICT
from probe.experiments.pictures import (
    bound,
    decay,
    depth,
    heads,
    load,
    masks,
    reach,
    scalars,
    slopes,
    spectrum,
    stream,
)
from probe.measure.run import Run
from probe.schema import Experiment, Picture

Runs = Callable[..., Run]


def _numbers(picture: Picture) -> dict[str, list[float | None]]:
    return {series.name: series.numbers for series in picture.series}


def _rows(reaches: Callable[[int, int], bool], size: int = masks.SHOWN) -> list[str]:
    return ["".join("1" if reaches(query, key) else "0" for key in range(size)) for query in range(size)]


def _full(query: int, key: int) -> bool:
    return key <= query


def test_a_window_a_chunk_and_a_full_mask(run_of: Runs) -> None:
    [window] = masks.pictures(run_of("mistral", sliding_window=4))
    assert window.rows == _rows(lambda query, key: query - 4 < key <= query) and window.blocks == [0, 1, 2]
    assert "3 positions before it" in window.statement
    chunk, full = masks.pictures(run_of("llama4_text"))
    assert chunk.rows == _rows(lambda query, key: query // 8 * 8 <= key <= query) and chunk.blocks == [0, 1, 2, 4, 5, 6]
    assert full.rows == _rows(_full) and full.blocks == [3, 7] and full.step == 1


def test_a_window_wider_than_the_picture_is_shown_at_steps(run_of: Runs) -> None:
    [wide] = masks.pictures(run_of("mistral", sliding_window=60))
    assert wide.step > 1 and len(wide.rows or []) <= masks.SHOWN
    size = len(wide.rows or [])
    assert wide.rows == _rows(lambda query, key: (query - key) * wide.step < 60 and key <= query, size)
    assert "0" in (wide.rows or [""])[-1]


def test_a_mask_that_the_config_does_not_tell(run_of: Runs) -> None:
    """The windows of GPT-Neo are buffers: one is narrowed, and the config still says 8."""

    def narrow(module: Any) -> None:
        for block in module.transformer.h:
            bias = block.attn.attention.bias
            bias.copy_(torch.ones_like(bias[0, 0]).tril().triu(-2))

    [only] = masks.pictures(run_of("gpt_neo", change=narrow))
    assert only.rows == _rows(lambda query, key: query - 3 < key <= query)


def test_an_image_is_seen_both_ways(run_of: Runs) -> None:
    run = run_of("gemma4_text", "tiny-moe")
    both, full = masks.with_an_image(run)
    first, last = both.marked["image"]
    places = run.root("image_token_mask", "model.vision")[0].nonzero().flatten()
    assert [first, last] == [int(places[0]), int(places[-1])] and full.marked == both.marked
    rows = both.rows or []
    assert rows[first][first : last + 1] == "1" * (last - first + 1) and rows[first - 1][first:] == "0" * len(
        rows[0][first:]
    )
    assert full.rows == _rows(_full, len(rows))


def test_the_reach_of_a_convolution_is_that_of_its_kernel(run_of: Runs) -> None:
    def shorten(module: Any) -> None:
        for layer in module.model.layers:
            if hasattr(layer, "conv"):
                layer.conv.conv.weight.data[..., 0] = 0

    [three] = reach.pictures(run_of("lfm2"))
    [two] = reach.pictures(run_of("lfm2", change=shorten))
    assert three.rows == _rows(lambda out, given: out - 3 < given <= out, reach.PLACES) and three.blocks == [0, 2]
    assert two.rows == _rows(lambda out, given: out - 2 < given <= out, reach.PLACES)
    assert reach.pictures(run_of("llama")) == []


def test_the_spectrum_is_the_speed_of_each_pair(run_of: Runs) -> None:
    run = run_of("llama")
    [plain] = spectrum.pictures(run)
    rotary = run.model._module.model.rotary_emb
    assert _numbers(plain) == {"every block": [pytest.approx(speed, rel=5e-3) for speed in rotary.inv_freq.tolist()]}

    def slow(module: Any) -> None:
        module.model.rotary_emb.inv_freq.mul_(0.5)

    [slowed] = spectrum.pictures(run_of("llama", change=slow))
    assert _numbers(slowed)["every block"][0] == 0.5


def test_pairs_that_do_not_turn_are_gaps(run_of: Runs) -> None:
    [partial] = spectrum.pictures(run_of("gptj"))
    [numbers] = _numbers(partial).values()
    assert [number is None for number in numbers] == [False] * 2 + [True] * 6
    [mixed] = spectrum.pictures(run_of("cohere2"))
    turning, still = _numbers(mixed).values()
    assert None not in turning and set(still) == {None}
    assert spectrum.pictures(run_of("gpt2")) == []


def test_blocks_of_one_spectrum_tell_of_pairs_that_one_of_them_hides() -> None:
    unseen = float("nan")
    first, second, other = (1.0, 0.1, unseen), (1.001, unseen, 0.01), (1.0, 0.2, None)
    assert spectrum.grouped([first, None, second, other]) == [((1.0, 0.1, 0.01), [0, 2]), (other, [3])]


def test_the_slopes_are_those_of_the_heads(run_of: Runs) -> None:
    [drawn] = slopes.pictures(run_of("bloom"))
    [numbers] = _numbers(drawn).values()
    assert numbers[:4] == [0.25, 0.0625, 0.0156, 0.00391]
    assert slopes.pictures(run_of("llama")) == []


def test_slopes_that_differ_by_less_than_a_fit_are_drawn_once(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    three = [
        Fit("product", 1, 0),
        *(Fit("slope", 1, 0, slopes=(-slope, -0.25)) for slope in (0.12349, 0.12351, 0.1245)),
    ]
    monkeypatch.setattr(slopes, "fits", lambda run: three)
    [drawn] = slopes.pictures(run_of("bloom"))
    assert drawn.blocks == [1, 2, 3]
    assert [series.name for series in drawn.series] == ["blocks 1 and 2", "block 3"]


def test_the_load_adds_up_to_k_a_token(run_of: Runs) -> None:
    run = run_of("mixtral")
    [drawn] = load.pictures(run)
    tokens = run.inputs["input_ids"].shape[1]
    assert [sum(filter(None, numbers)) for numbers in _numbers(drawn).values()] == [2 * tokens] * len(run.text)
    assert load.pictures(run_of("llama")) == []

    def blind(module: Any) -> None:
        for layer in module.model.layers:
            layer.mlp.gate.weight.data.zero_()

    [same] = load.pictures(run_of("mixtral", change=blind))
    assert all(sorted(numbers, key=float)[-2:] == [tokens, tokens] for numbers in map(list, _numbers(same).values()))
    assert "take none" in same.statement


def test_growth_is_the_length_of_what_was_read(run_of: Runs) -> None:
    def louder(module: Any) -> None:
        module.model.layers[1].self_attn.o_proj.weight.data.mul_(8)

    plain, loud = (_numbers(stream.pictures(run)[0]) for run in (run_of("llama"), run_of("llama", change=louder)))
    assert list(plain) == ["layer_output", "attention_output", "mlp_output"]
    ratios = [b / a for a, b in zip(plain["attention_output"], loud["attention_output"], strict=True) if a and b]
    assert ratios[0] == pytest.approx(1, rel=1e-2) and ratios[1] == pytest.approx(8, rel=1e-2)
    assert (loud["layer_output"][1] or 0) > 1.5 * (plain["layer_output"][1] or 0)


def test_factors_are_shown_where_they_differ_from_block_to_block(run_of: Runs) -> None:
    def change(numbers: list[float]) -> Callable[[Any], None]:
        def changed(module: Any) -> None:
            for layer, number in zip(module.model.layers, numbers, strict=True):
                layer.layer_scalar.fill_(number)

        return changed

    rising = [0.5 + index / 4 for index in range(8)]
    [drawn] = scalars.pictures(run_of("gemma4_text", change=change(rising)))
    assert _numbers(drawn) == {"layer_scalar": rising}
    assert scalars.pictures(run_of("gemma4_text", change=change([0.5] * 8))) == []


def test_factors_that_stay_are_drawn_beside_those_that_differ(run_of: Runs) -> None:
    [drawn] = scalars.pictures(run_of("minimax"))
    assert list(_numbers(drawn)) == ["attn_alpha_factor", "attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor"]
    assert "the same on all that have it: `mlp_alpha_factor`, `mlp_beta_factor`" in drawn.statement


def test_a_states_decay_is_what_the_module_multiplies_it_by(run_of: Runs) -> None:
    run = run_of("minimax")
    [drawn] = decay.pictures(run)
    rate = next(module.slope_rate for module in run.model._module.modules() if hasattr(module, "slope_rate"))
    assert _numbers(drawn) == {"any token": pytest.approx(torch.exp(-rate.flatten()).tolist(), rel=1e-2)}
    assert drawn.axes[0] == "head" and "whatever the token is" in drawn.statement
    heads_of = _numbers(decay.pictures(run_of("mamba2"))[0])
    assert list(heads_of) == ["a token", "another token"] and heads_of["a token"] != heads_of["another token"]
    [channels] = decay.pictures(run_of("mamba"))
    most, least = (series.numbers for series in channels.series)
    assert most == sorted(most, reverse=True) and all(low < high for low, high in zip(least, most, strict=True))
    assert len(most) * channels.step >= 192 and len(most) <= decay.MOST
    assert decay.pictures(run_of("qwen3_next")) == [] == decay.pictures(run_of("llama"))


def test_what_goes_by_depth_is_drawn_where_it_differs(run_of: Runs) -> None:
    [drawn] = depth.of_scores(run_of("gpt2", "tiny-scaled-by-depth"))
    assert _numbers(drawn) == {"factor of the scores": pytest.approx([1, 1 / 2, 1 / 3], rel=1e-2)}
    assert depth.of_scores(run_of("gpt2")) == depth.of_scores(run_of("mamba")) == []
    [passes] = depth.of_passes(run_of("hrm_text"))
    [numbers] = _numbers(passes).values()
    assert len(numbers) == 6 and numbers[0] == 0 and numbers[-1] == max(numbers)
    assert depth.of_passes(run_of("llama")) == []


def test_what_a_bounded_mlp_gives_stops_growing_and_another_has_no_picture(run_of: Runs) -> None:
    [drawn] = bound.of_mlps(run_of("gpt_oss"))
    numbers = _numbers(drawn)
    assert numbers["taken"][-1] == pytest.approx(1e8 * numbers["taken"][0], rel=1e-2)
    assert numbers["given"][-1] == numbers["given"][-2] > 100 * numbers["given"][0]
    assert len(drawn.ticks or []) == len(numbers["given"])
    assert bound.of_mlps(run_of("llama")) == []


def test_what_clipped_projections_are_made_into_stops_at_the_limit(run_of: Runs) -> None:
    run = run_of("dbrx")
    limit = run.model.text_config.attn_config.clip_qkv
    [drawn] = bound.of_projections(run)
    numbers = _numbers(drawn)
    assert list(numbers) == ["queries", "keys", "values"]
    for sizes in numbers.values():
        assert sizes[-1] == pytest.approx(limit, rel=1e-3) and sizes[0] < limit / 3
        assert sizes == sorted(sizes, key=lambda size: size or 0)
    assert bound.of_projections(run_of("llama")) == []


def test_the_heads_with_most_of_something_are_chosen(run_of: Runs) -> None:
    size = 6
    even = torch.ones(size, size).tril()
    even /= even.sum(1, keepdim=True)
    before, first = torch.eye(size).roll(1, 0).tril(), torch.zeros(size, size)
    before[0, 0] = 1
    first[:, 0] = 1
    patterns = {0: torch.stack([0.5 * even + 0.5 * torch.eye(size), before]), 2: torch.stack([first, even])}
    tokens = [f"t{place}" for place in range(size)]
    drawn = {picture.name: picture for picture in heads.chosen(patterns, tokens)}
    assert [(name, picture.label[-15:]) for name, picture in drawn.items()] == [
        ("pattern-before", "block 0, head 1"),
        ("pattern-first", "block 2, head 0"),
        ("pattern-spread", "block 2, head 1"),
    ]
    assert drawn["pattern-first"].rows == ["100 0 0 0 0 0"] * size and drawn["pattern-first"].ticks == tokens
    assert heads.chosen({0: patterns[0][:, :, :-1]}, tokens) == []
    assert heads.pictures(run_of("llama")) == []


def test_a_picture_stands_on_the_cards_of_quirks_that_hold(run_of: Runs) -> None:
    run = run_of("cohere2")
    drawn, failed = pictures.draw_all(run, run_all(run)[0])
    on = {picture.name: picture.quirks for picture in drawn}
    assert on["mask-0"] == on["mask-1"] == ["sliding-window"] and on["growth"] == [] and not failed
    assert "nope-blocks" in on["rotary"] and "partial-rotary" not in on["rotary"]
    assert len({picture.name for picture in drawn}) == len(drawn)


def test_a_picture_that_stops_with_an_error_is_told(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Run) -> list[Picture]:
        raise RuntimeError("no such tensor")

    monkeypatch.setattr(pictures, "KINDS", (("load of the experts", broken), ("growth", stream.pictures)))
    answers: list[Experiment] = []
    monkeypatch.setenv(STRICT, "1")
    with pytest.raises(RuntimeError):
        pictures.draw_all(run_of("llama"), answers)
    monkeypatch.delenv(STRICT)
    drawn, [told] = pictures.draw_all(run_of("llama"), answers)
    assert [picture.name for picture in drawn] == ["growth"]
    assert "no such tensor" in told.statement and told.name == "not_measured_load_of_the_experts"
