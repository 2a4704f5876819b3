"""Pairs for what a block reads beside its stream: token ids, embeddings, other rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks, with_forward
from tests.experiments.pairs.parts import seeded


def beside_the_stream(made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    """A mutation that adds to the neurons of the second block's MLP what is made of token ids and embeddings."""

    def mutate(module: Any) -> None:
        now: dict[str, torch.Tensor] = {}
        module.model.embed_tokens.register_forward_pre_hook(lambda _, args: now.update(ids=args[0]))
        blocks(module)[0].register_forward_pre_hook(lambda _, args: now.update(embedded=args[0]))
        blocks(module)[1].mlp.up_proj.register_forward_hook(
            lambda _, __, out: out + made(now["ids"], now["embedded"])[..., : out.shape[-1]]
        )

    return mutate


def by_token(ids: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return seeded("by token", 320, 512)[ids]


def by_embedding(_: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
    return torch.cat([embedded] * 8, -1)


def with_rows_before(self: Any, x: torch.Tensor) -> torch.Tensor:
    """An MLP that gives each row the sum of its own and of the rows before it in the batch."""
    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)).cumsum(0)


def silent_table(module: Any) -> None:
    """The embedding of a token for each block is zero; what is projected from the embeddings stays."""
    module.model.embed_tokens_per_layer.weight.zero_()


def names_a_branch(module: Any) -> bool:
    return bool(getattr(module.config.get_text_config(decoder=True), "hidden_size_per_layer_input", 0))


def takes_embeddings(module: Any) -> bool:
    return "original_hidden_states" in inspect.signature(type(blocks(module)[0]).forward).parameters


def deaf(self: Any, hidden_states: torch.Tensor, original_hidden_states: Any = None, **kwargs: Any) -> torch.Tensor:
    hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


OWN = {"num_kv_shared_layers": 0}

PAIRS = (
    Pair(
        "per-layer-embeddings",
        yes=Twin("gemma4_text", config=OWN),
        no=Twin("gemma4_text", config={**OWN, "hidden_size_per_layer_input": 0}),
        mutants=(
            Mutant(Twin("gemma4_text", config=OWN, mutate=silent_table), names_a_branch, "no", "the table is zero"),
            Mutant(
                Twin("mistral", mutate=beside_the_stream(by_token)),
                names_a_branch,
                "yes",
                "no config entry names the table",
                blocks=[1],
            ),
        ),
    ),
    Pair(
        "batch-mixing",
        yes=Twin("mistral", mutate=with_forward(with_rows_before, "mlp")),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=with_forward(with_rows_before, "mlp")),
                lambda module: any("CDMoE" in type(part).__name__ for part in module.modules()),
                "yes",
                "an MLP looks at its rows",
            ),
        ),
    ),
    Pair(
        "embeddings-again",
        yes=Twin("mistral", mutate=beside_the_stream(by_embedding)),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=beside_the_stream(by_embedding)),
                takes_embeddings,
                "yes",
                "no argument of the block is for them",
                blocks=[1],
            ),
            Mutant(
                Twin("mistral", mutate=with_forward(deaf)), takes_embeddings, "no", "an argument for them is not used"
            ),
        ),
    ),
)
