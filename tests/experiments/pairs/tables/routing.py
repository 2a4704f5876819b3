"""Pairs for mixtures of experts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, each_block, named_like, replaced, set_config
from tests.experiments.pairs.parts import Mixture, linear

FOUR = {"num_hidden_layers": 4}
EVERY = Twin("qwen3_moe", config=FOUR)
DENSE = Twin("qwen3_moe", config={**FOUR, "mlp_only_layers": [0, 1, 2, 3]})
LATER = {**FOUR, "mlp_only_layers": [0, 1]}
SECOND = {**FOUR, "decoder_sparse_step": 2}


def is_sparse(module: Any) -> bool:
    return any("Sparse" in type(part).__name__ for part in module.modules())


def has_shared_expert(module: Any) -> bool:
    return any("shared_expert" in name for name, _ in module.named_modules())


def mixture(shared: bool) -> Callable[[Any], Any]:
    return lambda mlp: Mixture(mlp, experts=5, chosen=2, shared=shared)


def silent(block: Any) -> None:
    block.mlp.shared_expert.down_proj.weight.zero_()


def copied(places: dict[int, int]) -> Callable[[Any], None]:
    """A mutation that gives blocks the MLP of other ones: place -> where it is copied from."""

    def mutate(module: Any) -> None:
        taken = {to: copy.deepcopy(blocks(module)[of].mlp) for to, of in places.items()}
        for to, mlp in taken.items():
            blocks(module)[to].mlp = mlp

    return mutate


def norms_weights(value: bool) -> Callable[[Any], None]:
    return each_block(lambda block: setattr(block.mlp.gate, "norm_topk_prob", value))


def by_id(module: Any) -> None:
    """The routers read a table at the token's id in place of the stream."""
    table, ids = torch.randn(320, module.config.hidden_size, generator=torch.Generator().manual_seed(0)), {}
    module.model.embed_tokens.register_forward_pre_hook(lambda _, args: ids.update(now=args[0]))
    for block in blocks(module):
        block.mlp.gate.register_forward_pre_hook(lambda _, args: (table[ids["now"].flatten()],))


def names_hash_layers(module: Any) -> bool:
    return "hash_moe" in (getattr(module.config, "mlp_layer_types", None) or [])


def first_are_dense(module: Any) -> bool:
    only = module.config.mlp_only_layers
    return bool(only) and only == list(range(len(only))) and len(only) < module.config.num_hidden_layers


def steps(module: Any) -> bool:
    return module.config.decoder_sparse_step > 1


def dense_at(*places: int) -> Callable[[Any], None]:
    """A mutation that puts a dense MLP in the place of some blocks' mixtures."""

    def mutate(module: Any) -> None:
        for place in places:
            blocks(module)[place].mlp = named_like(dense)(blocks(module)[place].mlp)

    return mutate


def dense(before: Any) -> Any:
    """A dense MLP as wide as one expert."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP

    experts = before.experts
    config = type("Sizes", (), {"hidden_size": experts.hidden_dim, "hidden_act": "silu"})
    made = Qwen3MoeMLP(config, intermediate_size=experts.intermediate_dim)
    for name in ("gate_proj", "up_proj", "down_proj"):
        layer = getattr(made, name)
        layer.weight = linear(layer.in_features, layer.out_features, name).weight
    return made


PAIRS = (
    Pair(
        "mixture-of-experts",
        yes=EVERY,
        no=DENSE,
        mutants=(
            Mutant(
                Twin("qwen3_moe", config=FOUR, mutate=dense_at(0, 1, 2, 3)),
                is_sparse,
                "no",
                "a Qwen3MoeSparseMoeBlock without experts",
            ),
            Mutant(
                Twin("mistral", mutate=replaced(named_like(mixture(shared=False)), "mlp")),
                is_sparse,
                "yes",
                "a MistralMLP with a router and experts",
                blocks=[0, 1, 2],
                measured={"experts": 5, "chosen": 2},
            ),
        ),
    ),
    Pair(
        "shared-expert",
        yes=Twin("qwen2_moe"),
        no=Twin("qwen2_moe", mutate=each_block(silent)),
        mutants=(
            Mutant(
                Twin("qwen2_moe", mutate=each_block(silent)),
                has_shared_expert,
                "no",
                "a shared expert that gives zeros",
            ),
            Mutant(
                Twin("mistral", mutate=replaced(mixture(shared=True), "mlp")),
                has_shared_expert,
                "yes",
                "an expert for every token under another name",
            ),
        ),
    ),
    Pair(
        "dense-first-blocks",
        yes=Twin("qwen3_moe", config=LATER),
        no=EVERY,
        mutants=(
            Mutant(
                Twin("qwen3_moe", config=LATER, mutate=copied({0: 2, 1: 3})),
                first_are_dense,
                "no",
                "the config names dense blocks that are mixtures",
            ),
            Mutant(
                Twin("qwen3_moe", config=FOUR, mutate=dense_at(0)),
                first_are_dense,
                "yes",
                "the first block is a Qwen3MoeSparseMoeBlock without experts",
                blocks=[0],
                measured={"dense": 1},
            ),
        ),
    ),
    Pair(
        "interleaved-moe",
        yes=Twin("qwen3_moe", config=SECOND),
        no=EVERY,
        mutants=(
            Mutant(
                Twin("qwen3_moe", config=SECOND, mutate=copied({0: 1, 2: 3})),
                steps,
                "no",
                "the config names a step and every block is a mixture",
            ),
            Mutant(
                Twin("qwen3_moe", config=FOUR, mutate=dense_at(0, 2)),
                steps,
                "yes",
                "the config names no step",
                blocks=[1, 3],
                measured={"step": 2},
            ),
        ),
    ),
    Pair(
        "unnormalized-routing",
        yes=Twin("qwen3_moe", config={"norm_topk_prob": False}),
        no=Twin("qwen3_moe", config={"norm_topk_prob": True}),
        mutants=(
            Mutant(
                Twin("qwen3_moe", config={"norm_topk_prob": True}, mutate=norms_weights(False)),
                lambda module: not module.config.norm_topk_prob,
                "yes",
                "the config says that the weights are normed",
            ),
            Mutant(
                Twin("qwen3_moe", config={"norm_topk_prob": False}, mutate=norms_weights(True)),
                lambda module: not module.config.norm_topk_prob,
                "no",
                "the config says that the weights are not normed",
            ),
        ),
    ),
    Pair(
        "hash-routing",
        yes=Twin("qwen3_moe", mutate=by_id),
        no=Twin("qwen3_moe"),
        mutants=(
            Mutant(Twin("qwen3_moe", mutate=by_id), names_hash_layers, "yes", "the config names no hash"),
            Mutant(
                Twin("qwen3_moe", mutate=set_config(mlp_layer_types=["hash_moe", "moe"])),
                names_hash_layers,
                "no",
                "the config names a hash",
            ),
        ),
    ),
)
