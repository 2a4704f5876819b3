"""Pairs for the ways into and out of the stack, and for what a block reads beside its stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import Same, blocks, named_like, set_config, with_forward
from tests.experiments.pairs.parts import seeded

Change = Callable[[torch.Tensor], torch.Tensor]


def with_embedding(change: Change) -> Callable[[Any], None]:
    """A mutation of what the embedding module gives."""
    return lambda module: module.get_input_embeddings().register_forward_hook(lambda _, __, out: change(out))


def with_entrance(change: Change) -> Callable[[Any], None]:
    """A mutation of what enters the first block."""
    return lambda module: blocks(module)[0].register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:]))


def with_logits(change: Change) -> Callable[[Any], None]:
    """A mutation of the logits, past the head."""

    def mutate(module: Any) -> None:
        def forward(self: Any, input_ids: Any = None, **inputs: Any) -> Any:
            out = before(self, input_ids=input_ids, **inputs)
            out.logits = change(out.logits)
            return out

        before = type(module).forward
        module.__class__ = type(type(module).__name__, (type(module),), {"forward": forward})

    return mutate


def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def unit(module: Any) -> None:
    module.model.embed_tokens.embed_scale.fill_(1.0)


def single(module: Any) -> None:
    module.model.embedding_multiplier = 1.0


def level(module: Any) -> None:
    module.logit_scale = 1.0


def unnormed(module: Any) -> None:
    norm = module.transformer.word_embeddings_layernorm
    module.transformer.word_embeddings_layernorm = named_like(lambda _: Same())(norm)


def normed(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(x, x.shape[-1:])


def capped(x: torch.Tensor) -> torch.Tensor:
    return 20 * torch.tanh(x / 20)


ENTRANCE = (
    Pair(
        "scaled-embeddings",
        yes=Twin("gemma3_text"),
        no=Twin("gemma3_text", mutate=unit),
        mutants=(
            Mutant(
                Twin("gemma3_text", mutate=unit),
                lambda module: "Scaled" in type(module.get_input_embeddings()).__name__,
                "no",
                "a scaled embedding whose scale is one",
            ),
            Mutant(
                Twin("mistral", mutate=with_embedding(triple)),
                lambda module: "Scaled" in type(module.get_input_embeddings()).__name__,
                "yes",
                "a plain embedding that is multiplied",
                measured={"factor": 3.0},
            ),
        ),
    ),
    Pair(
        "embedding-multiplier",
        yes=Twin("granite"),
        no=Twin("granite", config={"embedding_multiplier": 1.0}),
        mutants=(
            Mutant(
                Twin("granite", mutate=single),
                lambda module: getattr(module.config, "embedding_multiplier", 1.0) != 1.0,
                "no",
                "the model's factor is one, whatever the config says",
            ),
            Mutant(
                Twin("mistral", mutate=with_entrance(triple)),
                lambda module: getattr(module.config, "embedding_multiplier", 1.0) != 1.0,
                "yes",
                "no config entry names the factor",
                measured={"factor": 3.0},
            ),
        ),
    ),
    Pair(
        "normed-embeddings",
        yes=Twin("bloom"),
        no=Twin("bloom", mutate=unnormed),
        mutants=(
            Mutant(
                Twin("bloom", mutate=unnormed),
                lambda module: any("embeddings_layernorm" in name for name, _ in module.named_modules()),
                "no",
                "a LayerNorm that changes nothing",
            ),
            Mutant(
                Twin("mistral", mutate=with_entrance(normed)),
                lambda module: any("embeddings_layernorm" in name for name, _ in module.named_modules()),
                "yes",
                "a norm that is no module",
            ),
        ),
    ),
)

EXIT = (
    Pair(
        "softcapped-logits",
        yes=Twin("gemma2"),
        no=Twin("gemma2", config={"final_logit_softcapping": None}),
        mutants=(
            Mutant(
                Twin("gemma2", mutate=set_config(final_logit_softcapping=1e7)),
                lambda module: getattr(module.config, "final_logit_softcapping", None) is not None,
                "no",
                "a cap that no logit comes near",
            ),
            Mutant(
                Twin("mistral", mutate=with_logits(capped)),
                lambda module: getattr(module.config, "final_logit_softcapping", None) is not None,
                "yes",
                "no config entry names the cap",
                measured={"cap": 20.0},
            ),
        ),
    ),
    Pair(
        "scaled-logits",
        yes=Twin("cohere"),
        no=Twin("cohere", config={"logit_scale": 1.0}),
        mutants=(
            Mutant(
                Twin("cohere", mutate=level),
                lambda module: getattr(module.config, "logit_scale", 1.0) != 1.0,
                "no",
                "the model's factor is one, whatever the config says",
            ),
            Mutant(
                Twin("mistral", mutate=with_logits(lambda x: x / 2)),
                lambda module: getattr(module.config, "logit_scale", 1.0) != 1.0,
                "yes",
                "no config entry names the factor",
                measured={"factor": 0.5},
            ),
        ),
    ),
)


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


def less_the_mean(self: Any, x: torch.Tensor) -> torch.Tensor:
    """An MLP whose rows are taken relative to those of the batch."""
    out = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
    weights = torch.arange(1, len(x) + 1).to(x.dtype).reshape(-1, 1, 1)
    return out * weights


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

BESIDE = (
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
        yes=Twin("mistral", mutate=with_forward(less_the_mean, "mlp")),
        no=Twin("mistral"),
        mutants=(
            Mutant(
                Twin("mistral", mutate=with_forward(less_the_mean, "mlp")),
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

PAIRS = (*ENTRANCE, *EXIT, *BESIDE)
