"""Pairs for how scores come from queries and keys, and for what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.experiments.pairs.attentions import calling, has, is_of, names, setting, then
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block, in_turn, replaced

Place = Callable[[torch.Tensor], torch.Tensor]


def biased(number: Place) -> Callable[[Any], None]:
    """A mutation that adds to the mask a number of each query's and key's place, halved from head to head."""

    def bias(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        mask = kwargs["attention_mask"]
        heads = 0.5 ** torch.arange(1, module.config.num_attention_heads + 1.0)[:, None, None]
        return {"attention_mask": mask + heads * number(torch.arange(mask.shape[-1]).float())}

    return calling(bias)


def straight(place: torch.Tensor) -> torch.Tensor:
    return place[None] - place[:, None]


def bent(place: torch.Tensor) -> torch.Tensor:
    return (place[:, None] - place[None]).clamp_min(0).sqrt()


def of_the_key(place: torch.Tensor) -> torch.Tensor:
    return (place * 7).sin()[None].expand(len(place), -1)


def of_both(place: torch.Tensor) -> torch.Tensor:
    return (place[:, None] * place[None]).sin()


def no_bias_by_distance(module: Any) -> None:
    module.cpmant.position_bias.relative_attention_bias.zero_()


def by_distance_along_a_line(module: Any) -> None:
    module.cpmant.position_bias.register_forward_hook(lambda _, __, out: _slopes(out))


def _slopes(bias: torch.Tensor) -> torch.Tensor:
    place = torch.arange(float(bias.shape[-1]))
    return (straight(place) * 0.5 ** torch.arange(1, bias.shape[1] + 1.0)[:, None, None]).expand_as(bias)


NO_ALIBI = Twin("bloom", mutate=calling(lambda _, kwargs: {"alibi": kwargs["alibi"] * 0}, "self_attention"))
A_WAVE = Twin("bloom", mutate=calling(lambda _, kwargs: {"alibi": kwargs["alibi"].sin()}, "self_attention"))
ONE_NUMBER = Twin("doge", mutate=each_block(lambda block: block.self_attn.A.zero_()))
NO_LOGITS = Twin("inkling_text", mutate=each_block(lambda block: block.self_attn.rel_logits_proj.proj.zero_()))
SCALED_KEYS = Twin(
    "llama", mutate=in_turn(replaced(then(lambda k: k / 3), "self_attn.k_proj"), setting("scaling", 1.0))
)


def asks_for_no_scale(module: Any) -> bool:
    return module.config.query_pre_attn_scalar == 1


PAIRS = (
    Pair(
        "unscaled-scores",
        yes=Twin("gemma3_text", config={"query_pre_attn_scalar": 1}),
        no=Twin("gemma3_text"),
        mutants=(
            Mutant(
                Twin("gemma3_text", mutate=setting("scaling", 1.0)),
                asks_for_no_scale,
                "yes",
                "a config that names a scale",
            ),
            Mutant(
                SCALED_KEYS,
                lambda module: blocks(module)[0].self_attn.scaling == 1,
                "no",
                "a scale in the keys",
            ),
        ),
    ),
    Pair(
        "softcapped-scores",
        yes=Twin("gemma2"),
        no=Twin("gemma2", config={"attn_logit_softcapping": None}),
        mutants=(
            Mutant(
                Twin("gemma2", mutate=setting("attn_logit_softcapping", None)),
                names("attn_logit_softcapping"),
                "no",
                "a cap that the attention does not use",
            ),
            Mutant(
                Twin("gemma3_text", mutate=calling(lambda *_: {"softcap": 2.5})),
                names("attn_logit_softcapping"),
                "yes",
                "a cap that the config does not name",
                measured={"cap": 2.5},
            ),
        ),
    ),
    Pair(
        "alibi",
        yes=Twin("bloom"),
        no=NO_ALIBI,
        mutants=(
            Mutant(A_WAVE, is_of("bloom"), "no", "Bloom with a wave"),
            Mutant(Twin("arcee", mutate=biased(straight)), is_of("bloom"), "yes", "a slope inside the mask"),
        ),
    ),
    Pair(
        "relative-bias",
        yes=Twin("cpmant"),
        no=Twin("cpmant", mutate=no_bias_by_distance),
        mutants=(
            Mutant(
                Twin("cpmant", mutate=by_distance_along_a_line),
                has("relative_attention_bias"),
                "no",
                "a table that holds a slope",
            ),
            Mutant(Twin("arcee", mutate=biased(bent)), has("relative_attention_bias"), "yes", "a bias inside the mask"),
        ),
    ),
    Pair(
        "key-bias",
        yes=Twin("doge"),
        no=ONE_NUMBER,
        mutants=(
            Mutant(ONE_NUMBER, has("A"), "no", "one number for every key"),
            Mutant(Twin("arcee", mutate=biased(of_the_key)), has("A"), "yes", "a bias inside the mask"),
        ),
    ),
    Pair(
        "content-bias",
        yes=Twin("inkling_text"),
        no=NO_LOGITS,
        mutants=(
            Mutant(
                NO_LOGITS,
                has("rel_logits_proj"),
                "no",
                "relative logits that are zero",
            ),
            Mutant(Twin("arcee", mutate=biased(of_both)), has("rel_logits_proj"), "yes", "a bias inside the mask"),
        ),
    ),
)
