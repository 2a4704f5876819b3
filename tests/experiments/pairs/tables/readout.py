"""Pairs for the ways into and out of the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import Same, blocks, named_like, set_config

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

PAIRS = (*ENTRANCE, *EXIT)
