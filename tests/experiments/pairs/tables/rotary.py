"""Pairs for rotary: what turns, how fast, and by which positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import Neighbours, OwnArithmetic, is_of, of_class, setting
from tests.experiments.pairs.build import Mutant, Pair, Twin


def rotary(module: Any) -> list[Any]:
    """The modules that give cosines and sines."""
    return [part for name, part in module.named_modules() if name.endswith("rotary_emb")]


def frequencies(change: Callable[[torch.Tensor], torch.Tensor], name: str = "inv_freq") -> Callable[[Any], None]:
    """A mutation of the frequencies under a name."""

    def mutate(module: Any) -> None:
        for part in rotary(module):
            getattr(part, name).copy_(change(getattr(part, name)))

    return mutate


def still_from(share: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Frequencies of which only a first share is not zero."""
    return lambda speeds: torch.where(torch.arange(len(speeds)) < share * len(speeds), speeds, 0)


def of_base(base: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda speeds: base ** (-torch.arange(len(speeds)) / len(speeds))


def one_stream(module: Any) -> None:
    """The rotary takes the first of three streams for all of them."""
    for part in rotary(module):
        part.register_forward_pre_hook(_first_stream, with_kwargs=True)


def _first_stream(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    def first(value: Any) -> Any:
        streams = isinstance(value, torch.Tensor) and value.ndim == 3 and value.shape[0] == 3
        return value[:1].expand_as(value) if streams and not value.is_floating_point() else value

    return tuple(map(first, args)), {name: first(value) for name, value in kwargs.items()}


def promise_a_part(module: Any) -> None:
    module.config.rope_parameters["partial_rotary_factor"] = 0.5


def one_base(module: Any) -> None:
    for part in rotary(module):
        part.sliding_attention_inv_freq.copy_(part.full_attention_inv_freq)


class NormBehind(OwnArithmetic):
    """An attention that turns its queries and keys, and norms them after."""

    def turned(self: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        turned = x * cos[:, None] + torch.cat([-right, left], -1) * sin[:, None]
        found: torch.Tensor = self.q_norm(turned)
        return found


def leaves_blocks_out(module: Any) -> bool:
    return 0 in (getattr(module.config, "no_rope_layers", None) or [1])


def part_of(module: Any) -> float:
    every = getattr(module.config, "rope_parameters", None) or {}
    kinds = [kind for kind in (every, *every.values()) if isinstance(kind, dict)]
    return min(kind.get("partial_rotary_factor") or 1.0 for kind in kinds)


def turns_a_part(module: Any) -> bool:
    return part_of(module) < 1


def names_two_bases(module: Any) -> bool:
    kinds = [kind for kind in module.config.rope_parameters.values() if isinstance(kind, dict)]
    return len({kind["rope_theta"] for kind in kinds}) > 1


def rescales(module: Any) -> bool:
    return module.config.rope_parameters["rope_type"] != "default"


def names_streams(module: Any) -> bool:
    return len(module.config.get_text_config().rope_parameters.get("mrope_section") or []) > 1


DEFAULT = {"rope_theta": 10000.0, "rope_type": "default"}

PAIRS = (
    Pair(
        "nope-blocks",
        yes=Twin("smollm3"),
        no=Twin("smollm3", config={"no_rope_layers": [1, 1, 1, 1]}),
        mutants=(
            Mutant(
                Twin("smollm3", mutate=setting("use_rope", 1)), leaves_blocks_out, "no", "a rotary that is always used"
            ),
            Mutant(
                Twin("llama", "tiny-mha", mutate=frequencies(still_from(0))),
                leaves_blocks_out,
                "yes",
                "frequencies that are zero",
            ),
        ),
    ),
    Pair(
        "partial-rotary",
        yes=Twin("phi"),
        no=Twin("phi", config={"rope_parameters": {**DEFAULT, "partial_rotary_factor": 1.0}}),
        mutants=(
            Mutant(Twin("arcee", mutate=promise_a_part), turns_a_part, "no", "a part that the class ignores"),
            Mutant(
                Twin("cohere", mutate=frequencies(still_from(0.5))),
                turns_a_part,
                "yes",
                "frequencies that are zero from the middle on",
            ),
        ),
    ),
    Pair(
        "proportional-rotary",
        yes=Twin("gemma4_text"),
        no=Twin("gemma4_text", config={"rope_parameters.full_attention.partial_rotary_factor": 1.0}),
        mutants=(
            Mutant(
                Twin("gemma4_text", mutate=frequencies(of_base(1e6), "full_attention_inv_freq")),
                turns_a_part,
                "no",
                "frequencies of which none is zero",
            ),
            Mutant(
                Twin("llama", "tiny-mha", mutate=frequencies(still_from(0.5))),
                turns_a_part,
                "yes",
                "frequencies that are zero from the middle on",
            ),
        ),
    ),
    Pair(
        "interleaved-rotary",
        yes=Twin("cohere"),
        no=Twin("arcee"),
        mutants=(
            Mutant(Twin("arcee", mutate=of_class(Neighbours)), is_of("cohere"), "yes", "Arcee with another rotation"),
        ),
    ),
    Pair(
        "norm-after-rotary",
        yes=Twin("hunyuan_v1_dense"),
        no=Twin("qwen3"),
        mutants=(
            Mutant(
                Twin("qwen3", mutate=of_class(NormBehind)),
                is_of("hunyuan_v1_dense"),
                "yes",
                "Qwen3 with its norm behind the rotation",
            ),
        ),
    ),
    Pair(
        "multimodal-rotary",
        yes=Twin("qwen2_vl_text"),
        no=Twin("qwen2_vl_text", config={"text_config.rope_parameters": {**DEFAULT, "mrope_section": [8]}}),
        mutants=(Mutant(Twin("qwen2_vl_text", mutate=one_stream), names_streams, "no", "one stream for all sections"),),
    ),
    Pair(
        "rotary-bases",
        yes=Twin("gemma3_text"),
        no=Twin("gemma3_text", config={"rope_local_base_freq": 1000000}),
        mutants=(
            Mutant(Twin("gemma3_text", mutate=one_base), names_two_bases, "no", "the same frequencies on both kinds"),
        ),
    ),
    Pair(
        "rescaled-rotary",
        yes=Twin("llama"),
        no=Twin("llama", config={"rope_scaling": None}),
        mutants=(
            Mutant(
                Twin("llama", mutate=frequencies(of_base(5e5))), rescales, "no", "frequencies as the base gives them"
            ),
            Mutant(
                Twin("llama", "tiny-mha", mutate=frequencies(lambda speeds: speeds / 4)),
                rescales,
                "yes",
                "frequencies that are a quarter",
            ),
        ),
    ),
)
