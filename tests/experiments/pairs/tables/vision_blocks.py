"""Pairs for a vision tower's blocks: places and masks, norms, scales, clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.attentions import has, is_of
from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import Make, Same, named_like
from tests.experiments.pairs.towers import GEMMA3, GEMMA4, gemma3, gemma4, tower


def each(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """A mutation that changes every block of the tower."""

    def mutate(module: Any) -> None:
        for block in tower(module).encoder.layers:
            change(block)

    return mutate


def putting(make: Make, *paths: str) -> Callable[[Any], None]:
    """A mutation that puts what ``make`` makes of a module in its place, in every block of the tower."""

    def change(block: Any) -> None:
        for path in paths:
            block.set_submodule(path, make(block.get_submodule(path)))

    return each(change)


class NoMean(nn.Module):
    """A LayerNorm that subtracts no mean."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.weight, self.bias = before.weight, before.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight) + self.bias


class OfDifferences(nn.Module):
    """A norm of what is left of its input without the mean."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.weight = before.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight)


class Gain(nn.Module):
    """Multiplies by a norm's weight, and does not norm."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.weight = before.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def copying(_: nn.Module) -> nn.Module:
    return Same()


def no_turn(module: Any) -> None:
    tower(module).encoder.rotary_emb.inv_freq.zero_()


def table_of(number: float) -> Callable[[Any], None]:
    """A mutation that fills the table of positions with one number."""
    return lambda module: tower(module).embeddings.position_embedding.weight.fill_(number)


def look_back(block: Any) -> None:
    """A patch sees those before it only."""

    def causal(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        rows = (args[0] if args else kwargs["hidden_states"]).shape[1]
        return args, {**kwargs, "attention_mask": torch.full((rows, rows), -1e30).triu(1)[None, None]}

    block.self_attn.register_forward_pre_hook(causal, with_kwargs=True)


def scale_by(number: float, name: str = "scaling") -> Callable[[Any], None]:
    """A mutation of the attribute that an attention's scores are multiplied by."""
    return each(lambda block: setattr(block.self_attn, name, number))


def unbounded(module: Any) -> None:
    for name, buffer in tower(module).named_buffers():
        if name.endswith(("_min", "_max")):
            buffer.fill_(float("inf") if name.endswith("_max") else float("-inf"))


def bound(block: Any) -> None:
    """A projection that clips what it gives, without saying so."""
    block.mlp.fc1.register_forward_hook(lambda _, __, out: out.clamp(-2, 2))


def no_last_norm(module: Any) -> None:
    tower(module).post_layernorm = named_like(copying)(tower(module).post_layernorm)


def by_class(module: Any) -> bool:
    """A check for PyTorch's LayerNorm in the tower's blocks."""
    first = tower(module).encoder.layers[0]
    return any(type(part).__name__ == "LayerNorm" for part in first.modules())


def looks_both_ways(module: Any) -> bool:
    return not tower(module).encoder.layers[0].self_attn.is_causal


def has_no_last_norm(module: Any) -> bool:
    return not has("post_layernorm")(module)


def clips(module: Any) -> bool:
    return getattr(module.config.vision_config, "use_clipped_linears", False)


POSTS = ("post_attention_layernorm", "post_feedforward_layernorm")
QUERIES_AND_KEYS = ("self_attn.q_norm", "self_attn.k_norm")
VALUES = "self_attn.v_norm"

BACKWARDS, NO_TABLE, SCALED = gemma3(each(look_back)), gemma3(table_of(0)), gemma4(scale_by(0.25))

PAIRS = (
    Pair(
        "vision-rotary",
        about="vision",
        yes=GEMMA4,
        no=gemma4(no_turn),
        mutants=(Mutant(gemma4(no_turn), is_of("gemma4"), "no", "frequencies that are zero"),),
    ),
    Pair(
        "tower-positions",
        about="vision",
        yes=GEMMA3,
        no=NO_TABLE,
        mutants=(
            Mutant(NO_TABLE, has("position_embedding"), "no", "a table of zeros"),
            Mutant(gemma3(table_of(1)), has("position_embedding"), "no", "a table with one vector for every place"),
        ),
    ),
    Pair(
        "unmasked-tower",
        about="vision",
        yes=GEMMA3,
        no=BACKWARDS,
        mutants=(Mutant(BACKWARDS, looks_both_ways, "no", "a mask that is_causal does not tell of"),),
    ),
    Pair(
        "tower-layernorm",
        about="vision",
        yes=GEMMA3,
        no=GEMMA4,
        mutants=(
            Mutant(
                gemma3(putting(named_like(NoMean), "layer_norm1", "layer_norm2")),
                by_class,
                "no",
                "a LayerNorm that subtracts no mean",
            ),
            Mutant(
                gemma4(
                    putting(named_like(OfDifferences), "input_layernorm", "pre_feedforward_layernorm", *POSTS),
                ),
                by_class,
                "yes",
                "a Gemma4RMSNorm that subtracts the mean",
            ),
        ),
    ),
    Pair(
        "tower-sandwich-norms",
        about="vision",
        yes=GEMMA4,
        no=gemma4(putting(copying, *POSTS)),
        mutants=(
            Mutant(
                gemma4(putting(named_like(copying), *POSTS)),
                has("post_feedforward_layernorm"),
                "no",
                "norms that only copy, under their names",
            ),
            Mutant(
                gemma4(putting(named_like(Gain), *POSTS)),
                has("post_feedforward_layernorm"),
                "no",
                "norms that only multiply by their gain",
            ),
        ),
    ),
    Pair(
        "tower-qk-norm",
        about="vision",
        yes=GEMMA4,
        no=gemma4(putting(copying, *QUERIES_AND_KEYS)),
        mutants=(
            Mutant(
                gemma4(putting(named_like(Gain), *QUERIES_AND_KEYS)),
                is_of("gemma4"),
                "no",
                "norms that only multiply by their gain",
            ),
        ),
    ),
    Pair(
        "tower-value-norm",
        about="vision",
        yes=GEMMA4,
        no=gemma4(putting(copying, VALUES)),
        mutants=(Mutant(gemma4(putting(named_like(copying), VALUES)), has("v_norm"), "no", "a norm that only copies"),),
    ),
    Pair(
        "unscaled-scores",
        about="vision",
        yes=GEMMA4,
        no=SCALED,
        mutants=(
            Mutant(SCALED, is_of("gemma4"), "no", "a scale that the class has not"),
            Mutant(gemma3(scale_by(1.0, "scale")), is_of("gemma4"), "yes", "a SigLIP tower without a scale"),
        ),
    ),
    Pair(
        "clipped-linears",
        about="vision",
        yes=GEMMA4,
        no=Twin("gemma4_text", "tiny-vision", {"vision_config.use_clipped_linears": False}),
        mutants=(
            Mutant(gemma4(unbounded), clips, "no", "bounds that are infinite"),
            Mutant(gemma3(each(bound)), clips, "yes", "bounds that no config names"),
        ),
    ),
    Pair(
        "no-tower-norm",
        about="vision",
        yes=GEMMA4,
        no=GEMMA3,
        mutants=(Mutant(gemma3(no_last_norm), has_no_last_norm, "yes", "a norm that only copies, under its name"),),
    ),
)
