"""Llama: the `llama` class, which Llama 2 to 3.3 share with SmolLM, TinyLlama, Falcon3 and others.

**The tree.** `model.{embed_tokens, layers[i].{input_layernorm, self_attn, post_attention_layernorm, mlp}, norm}` and
`lm_head`. There is no wrapper, so `RENAME` has one spelling and only drops the `model.` in front.

**The block** is the default that the hosts in `probe.values.hosts` describe, so this module moves no value:

    x1  = x  + self_attn(input_layernorm(x))
    out = x1 + mlp(post_attention_layernorm(x1))

- `attention_output` and `mlp_output` are what the two modules return.
- `layer_mid` is what enters `post_attention_layernorm`, which is the MLP's input norm despite its name.
- Queries and keys are read where the attention is called, after the rotary; head outputs before `o_proj`.

**The twins.** Published checkpoints differ in size and in three flags, so there are four twins: `tiny` shares key and
value heads between query heads, has its own head and rescaled rotary frequencies (Llama 3.1), `tiny-tied` ties the head
to the embedding (Llama 3.2), `tiny-plain` does so too, with frequencies as they are and a key and value head for every
query head (SmolLM), and `tiny-mha` has as many and its own head (Llama 2).
"""

from __future__ import annotations

from typing import Any

from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP

from probe.values.hosts import Attention, Layer, Mlp

TITLE = "Llama"

CHECKPOINTS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B-Instruct",
    "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B",
    "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
    "meta-llama/Llama-2-7b-chat-hf",
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "HuggingFaceTB/SmolLM2-360M-Instruct",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "HuggingFaceTB/SmolLM-1.7B",
    "TinyLlama/TinyLlama-1.1B-Chat-v0.4",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "tiiuae/Falcon3-7B-Instruct",
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b-hf",
    "meta-llama/Llama-2-70b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Meta-Llama-3-70B",
    "meta-llama/Llama-3.2-1B",
    "meta-llama/Llama-3.2-3B",
    "meta-llama/Llama-3.3-70B-Instruct",
)

TWINS: dict[str, dict[str, Any]] = {
    "tiny": {
        "config": "meta-llama__Llama-3.1-8B-Instruct",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "num_hidden_layers": 3,
            "max_position_embeddings": 512,
        },
        "rope": {"original_max_position_embeddings": 32},
    },
    "tiny-tied": {
        "config": "meta-llama__Llama-3.2-1B-Instruct",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_hidden_layers": 3,
            "max_position_embeddings": 512,
        },
        "rope": {"original_max_position_embeddings": 32},
    },
    "tiny-plain": {
        "config": "HuggingFaceTB__SmolLM-1.7B",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "head_dim": 8,
            "num_hidden_layers": 3,
            "max_position_embeddings": 512,
        },
    },
    "tiny-mha": {
        "config": "meta-llama__Llama-2-7b-chat-hf",
        "text": {
            "hidden_size": 48,
            "intermediate_size": 72,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "num_hidden_layers": 3,
            "max_position_embeddings": 512,
        },
    },
}

RENAME: dict[str | type, str | list[str]] = {
    "model.embed_tokens": "embed_tokens",
    "model.layers": "layers",
    "model.norm": "norm",
}
"""Native paths and their standard names."""

ENVOYS: dict[type, type] = {LlamaDecoderLayer: Layer, LlamaAttention: Attention, LlamaMLP: Mlp}
"""Which host serves the values of each native class."""
