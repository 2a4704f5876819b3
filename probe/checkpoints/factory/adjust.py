"""What generic shrinking cannot know, class by class: entries to set, and why."""

from __future__ import annotations

from typing import Any

from probe.checkpoints.tokens import VOCAB_SIZE

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
DENSE, SPARSE = "dense", "sparse"
GROUPED = {"num_key_value_heads": 2}
GROUPED_WHY = "the class default has as many KV heads as heads, its published checkpoints have fewer"
STRETCHED = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 1000.0}
"""Hunyuan's rotary, whose base a fixed number stretches."""


def _bitnet(mode: str) -> dict[str, str]:
    """What a BitNet checkpoint's config says of its linears: rounded before it was saved, or as they are called."""
    return {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": mode}


ADJUST: dict[str, tuple[dict[str, Any], str]] = {
    "afmoe": ({"mup_enabled": True}, "the published checkpoints scale their embeddings; the class's default does not"),
    "apertus": (GROUPED, GROUPED_WHY),
    "apertus1p5_text": (GROUPED, GROUPED_WHY),
    "arcee": (GROUPED, GROUPED_WHY),
    "bamba": (
        {"num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
        "the class default has no attention block, its published checkpoints have",
    ),
    "bitnet/tiny": (
        {"quantization_config": _bitnet("offline")},
        "the published checkpoint's linears hold three values a weight, and round what they are given to 8 bits",
    ),
    "bitnet/tiny-online": (
        {"quantization_config": _bitnet("online")},
        "the checkpoint for training has unrounded weights, which its linears round when they are called",
    ),
    "blt": (
        {
            "encoder_hash_byte_group_size": [3, 4],
            "encoder_hash_byte_group_vocab": 64,
            "patching_threshold": 3.9,
            "encoder_config.hidden_size_global": 192,
            "decoder_config.hidden_size_global": 192,
            "global_config.hidden_size": 192,
            "vocab_size": VOCAB_SIZE,
            "encoder_config.vocab_size": VOCAB_SIZE,
            "decoder_config.vocab_size": VOCAB_SIZE,
            "patcher_config.vocab_size": VOCAB_SIZE,
            "use_cache": False,
        },
        "the global stream is as wide as the local heads that feed it, a patch begins where the patcher is uncertain, "
        "the bytes are our tokenizer's, and a cache asks this config for num_hidden_layers, which it lacks",
    ),
    "codegen": (
        {"n_embd": 128, "n_head": 8},
        "the class cuts its fused projection in four shards, which hold whole heads on the published checkpoints",
    ),
    "cohere/tiny-qk-norm": ({"use_qk_norm": True}, "the largest published checkpoint norms queries and keys"),
    "cohere2": (GROUPED, GROUPED_WHY),
    "cohere2_moe": (GROUPED, GROUPED_WHY),
    "cohere2_moe/tiny-dense-first": (
        {
            "num_hidden_layers": 6,
            "layer_types": [FULL, FULL, SLIDING, FULL, SLIDING, FULL],
            "mlp_layer_types": [DENSE, DENSE, SPARSE, SPARSE, SPARSE, SPARSE],
            "prefix_dense_intermediate_size": 136,
            "num_shared_experts": 1,
            "expert_selection_fn": "sigmoid",
        },
        "the class has dense first blocks, which attend in full and yet turn their queries and keys, a shared expert "
        "whose output is averaged with the others', and another score of experts, none of which its default uses",
    ),
    "cohere_compass_text": (
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "layer_types": [SLIDING, FULL, SLIDING, FULL],
            "logit_scale": 0.0625,
            "rope_parameters": {
                SLIDING: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]},
                FULL: None,
            },
        },
        "the class default has rotary parameters for no block type, and windows that no block uses",
    ),
    "dbrx": (
        {"attn_config.rope_theta": 500000, "attn_config.clip_qkv": 1.5, "attn_config.kv_n_heads": 2},
        "the rotary base is no field of the attention's config; a clip at 8 would never bite at unit scale",
    ),
    "deepseek_v2/tiny-query-latent": (
        {"q_lora_rank": 36, "n_routed_experts": 12, "n_group": 4, "topk_group": 2,
         "topk_method": "group_limited_greedy"},
        "the checkpoints that are not Lite compress their queries too, and choose groups of experts first",
    ),
    "deepseek_v3/tiny-plain-query": (
        {"q_lora_rank": None, "n_group": 1, "topk_group": 1,
         "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
        "Moonlight projects its queries at once, and has neither groups of experts nor rescaled rotary",
    ),
    "deepseek_v4": (
        {
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
            "o_groups": 3,
            "rope_parameters.main.partial_rotary_factor": 1 / 3,
            "rope_parameters.compress.partial_rotary_factor": 1 / 3,
        },
        "compression and output groups divide the prompt and the heads; 8 of 24 dimensions turn",
    ),
    "dots1": (
        {
            "num_hidden_layers": 4,
            "layer_types": [FULL] * 4,
            "first_k_dense_replace": 2,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
        },
        "the class default has no number of experts; dense first, then a mixture, as published",
    ),
    "dots3_note_text": (
        {
            "swa_num_attention_heads": 3,
            "swa_num_key_value_heads": 3,
            "swa_q_lora_rank": 44,
            "swa_kv_lora_rank": 22,
            "swa_head_dim": 24,
            "swa_qk_nope_head_dim": 16,
            "swa_qk_rope_head_dim": 8,
            "swa_v_head_dim": 12,
        },
        "the windowed blocks have sizes of their own, under keys that are no fields of the class",
    ),
    "dory": (
        {"n_input_layers": 2, "n_recurrent_layers": 2, "n_output_layers": 2, "num_hidden_layers": 6,
         "layer_types": [SLIDING, FULL] * 3},
        "the stack has three parts, of which the middle one is run twice",
    ),
    "doge/tiny-moe": (
        {"is_moe": True, "num_experts": 16, "num_experts_per_tok": 3},
        "checkpoints of both kinds are published; experts are addressed by two halves of a square number",
    ),
    "ernie4_5_moe": (
        {"num_hidden_layers": 4, "moe_layer_start_index": 2, "moe_layer_end_index": 3},
        "which blocks are mixtures is told by a first and a last index",
    ),
    "exaone4/tiny-full": (
        {**GROUPED, "num_hidden_layers": 3, "layer_types": [FULL] * 3, "sliding_window": None,
         "sliding_window_pattern": None, "tie_word_embeddings": True},
        "the smallest published checkpoint has no windowed block, and then every block turns its queries and keys",
    ),
    "exaone_moe": (GROUPED, GROUPED_WHY),
    "falcon/tiny-alibi": (
        {"alibi": True, "parallel_attn": False, "multi_query": False, "bias": True},
        "the layout of Falcon RW: sequential, with biases and linear position biases",
    ),
    "falcon/tiny-one-norm": (
        {"num_ln_in_parallel_attn": 1},
        "Falcon 2 11B has grouped heads and one norm before attention and MLP",
    ),
    "falcon_h1": (
        {"mamba_d_ssm": 192, "mamba_n_heads": 12},
        "the mixer's inner width is its heads times their width",
    ),
    "falcon_h1/tiny-normed": (
        {"mamba_d_ssm": 192, "mamba_n_heads": 12, "mamba_n_groups": 3, "mamba_rms_norm": True,
         "mamba_norm_before_gate": False},
        "the class can norm what a mixer's scan gives, behind its gate, which its default does not",
    ),
    "gemma4_text": ({"global_head_dim": 48}, "the full-attention blocks' own head width is no field of the class"),
    "gemma4_unified_text": (
        {"global_head_dim": 48, "final_logit_softcapping": 30.0},
        "the full-attention blocks' own head width is no field of the class; every published Gemma 4 caps its logits",
    ),
    "glm4_moe/tiny-no-qk-norm": ({"use_qk_norm": False}, "GLM-4.5-Air does not norm queries and keys"),
    "gpt2/tiny-scaled-by-depth": (
        {"scale_attn_by_inverse_layer_idx": True},
        "the checkpoints of Stanford CRFM divide their scores by the block's number; their arithmetic of their own for "
        "half precision is left out, since the default attention does not use it",
    ),
    "gpt_neo": (
        {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "attention_layers": ["global", "local"] * 2},
        "which blocks are windowed is told by a nested pattern",
    ),
    "gpt_neox/tiny-sequential": ({"use_parallel_residual": False}, "checkpoints of both wirings are published"),
    "granite_swa/tiny-nope": (
        {"layer_rope_theta": [0, 10000.0, 0, 10000.0]},
        "a block whose rotary base is 0 turns nothing, and the class's default has the same base on every block",
    ),
    "granitemoe": (GROUPED, GROUPED_WHY),
    "granitemoe_swa": ({**GROUPED, "shared_intermediate_size": 72}, GROUPED_WHY),
    "granitemoehybrid": (
        {**GROUPED, "num_hidden_layers": 4, "layer_types": [LINEAR, FULL, LINEAR, FULL]},
        "the class default has no attention block, its published checkpoints have",
    ),
    "granitemoehybrid/tiny-attention": (
        {"layer_types": [FULL] * 4, "num_local_experts": 0, "num_experts_per_tok": 0,
         "position_embedding_type": "rope"},
        "the checkpoints without an h in their name have attention alone, with rotary, and no experts",
    ),
    "granitemoehybrid/tiny-dense": (
        {"num_local_experts": 0, "num_experts_per_tok": 0},
        "the smaller published checkpoints have no experts",
    ),
    "granitemoeshared": (
        {**GROUPED, "shared_intermediate_size": 72},
        "the class default has no shared expert, which the class exists for",
    ),
    "hrm_text": (
        {"num_hidden_layers": 2},
        "it counts the blocks of a stack, and each stack is run several times",
    ),
    "hunyuan_v1_dense": (
        {**GROUPED, "head_dim": 16, "rope_parameters": STRETCHED},
        "the class default has no head width, and a rotary base that is not stretched as the checkpoints' is",
    ),
    "hunyuan_v1_moe": (
        {**GROUPED, "head_dim": 16, "num_experts": 8, "moe_topk": 3, "rope_parameters": STRETCHED},
        "the class default has no head width, one expert, and a rotary base that is not stretched as the checkpoints' "
        "is",
    ),
    "hyperclovax": (GROUPED, GROUPED_WHY),
    "inkling2_loop_text": (
        {
            "num_hidden_layers": 12,
            "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid"] * 4,
            "n_layers_per_attn_res_block": 3,
            "loop_layer_index_start": 3,
            "loop_layer_index_end": 9,
        },
        "the loop runs over whole residual blocks, two here",
    ),
    "inkling2_text": (
        {
            "num_hidden_layers": 9,
            "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid"] * 3,
            "n_layers_per_attn_res_block": 3,
        },
        "a windowed block begins a residual block or stands within one",
    ),
    "inkling_text": (
        {
            "num_hidden_layers": 6,
            "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
            "mlp_layer_types": [DENSE, DENSE, SPARSE, SPARSE, SPARSE, SPARSE],
        },
        "the published checkpoint has weights of dense MLPs, and a width for them; the class default has none",
    ),
    "jamba": (
        {"num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 2},
        "which blocks attend and which are mixtures is told by periods",
    ),
    "jamba/tiny-dense": (
        {"num_experts": 1, "num_experts_per_tok": 1},
        "the published checkpoints of 3B parameters have no experts",
    ),
    "jetmoe": ({"num_key_value_heads": 3}, "its heads are the KV heads times the experts a token chooses"),
    "kimi_k2": (
        {"vision_config.pos_emb_height": 8, "vision_config.pos_emb_width": 8},
        "a small tower",
    ),
    "laguna": (
        {
            "num_hidden_layers": 6,
            "layer_types": [FULL, FULL, SLIDING, FULL, SLIDING, FULL],
            "mlp_layer_types": [DENSE, DENSE, SPARSE, SPARSE, SPARSE, SPARSE],
            "num_attention_heads_per_layer": [6, 6, 8, 6, 8, 6],
        },
        "the class default has a window and rotary parameters for sliding blocks, but no such block",
    ),
    "lfm2": ({"block_multiple_of": 8}, "the MLP's width is rounded up to a multiple of it"),
    "lfm2_moe": (
        {
            "num_hidden_layers": 6,
            "num_dense_layers": 2,
            "layer_types": ["conv", "conv", FULL, "conv", FULL, "conv"],
        },
        "the class default has no block types; dense convolutions first, as published",
    ),
    "mamba2": ({"num_heads": 12, "head_dim": 16}, "its heads are the mixer's, together twice as wide as the stream"),
    "mellum": ({"num_hidden_layers": 4, "layer_types": [SLIDING, FULL] * 2, "mlp_layer_types": [SPARSE] * 4},
        "the class default has rotary parameters and a window for sliding blocks, but no such block"),
    "mimo_v2_flash": ({"num_attention_heads": 8}, "windowed blocks have twice the KV heads"),
    "minimax": (
        {"layer_types": [LINEAR, FULL, LINEAR, FULL]},
        "the decay of a linear block vanishes on the last one, which attends on published checkpoints",
    ),
    "minimax_m3_vl_text": (
        {
            "num_hidden_layers": 4,
            "index_n_heads": 2,
            "index_head_dim": 24,
            "layer_types": [FULL, FULL, "minimax_m3_sparse", "minimax_m3_sparse"],
            "mlp_layer_types": [DENSE, DENSE, SPARSE, SPARSE],
            "rope_parameters.partial_rotary_factor": 1 / 2,
            "rotary_dim": 12,
        },
        "the class default has neither sparse attention nor dense blocks, which the class exists for, and its rotary "
        "does not read the part of the head that its `rotary_dim` says turns",
    ),
    "ministral": ({"head_dim": 16}, "the class default has no head width"),
    "ministral3/tiny-temperature": (
        {"rope_parameters.llama_4_scaling_beta": 0.1, "rope_parameters.original_max_position_embeddings": 8},
        "Ministral 3 scales its queries by their position; the config at hand, Devstral 2's, has a scale of zero",
    ),
    "modernbert-decoder": (
        {"num_hidden_layers": 6, "layer_types": [FULL, SLIDING] * 3},
        "the first block lacks a norm that the other full ones have",
    ),
    "mpt/tiny-clip": (
        {"attn_config.clip_qkv": 1.5, "attn_config.alibi_bias_max": 16},
        "StoryWriter clips queries, keys and values, and its linear position biases are flatter",
    ),
    "nemotron": (GROUPED, "the class default has no number of KV heads"),
    "nemotron_h/tiny-dense": (
        {"layers_block_type": [LINEAR, "mlp", FULL, "mlp", LINEAR, FULL]},
        "the layout of Nemotron-H before mixtures",
    ),
    "olmo/tiny-clip": ({"clip_qkv": 1.5}, "the checkpoints from April 2024 on clip queries, keys and values"),
    "olmo_hybrid": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
        "the published checkpoints turn neither queries nor keys",
    ),
    "phi": (
        {"hidden_size": 120},
        "heads 20 wide, of which 0.4 is an even number of dimensions, as of the published heads",
    ),
    "phi4_multimodal": (
        {
            "rope_parameters.partial_rotary_factor": 0.75,
            "sliding_window": 8,
            "audio_config.ext_pw_out_channel": 96,
            "audio_config.depthwise_separable_out_channel": 96,
            "audio_config.nemo_conv_channels": 32,
            "vision_config.crop_size": 16,
        },
        "small towers; the published checkpoint turns three quarters of a head, and has a window as Phi-4-mini has",
    ),
    "qwen2_5_vl_text": ({"vision_config.fullatt_block_indexes": [1]}, "a small tower"),
    "qwen2_vl_text": ({"vision_config.embed_dim": 48}, "a small tower"),
    "qwen3_vl_moe_text": ({"vision_config.deepstack_visual_indexes": [0, 1, 2]}, "a small tower"),
    "qwen3_vl_text": ({"vision_config.deepstack_visual_indexes": [0, 1, 2]}, "a small tower"),
    "qwen4_exp_text": (
        {
            "indexer_n_heads": 4,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 24,
            "indexer_budget": 8,
            "indexer_compress_ratio": 2,
            "ple_layer_ids": [1, 3],
            "ngram_vocab_size_base": 90,
            "heads_per_ngram": 2,
            "make_ngram_vocab_size_divisible_by": 8,
            "split_ngram_parts": 2,
            "eos_token_id": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 1 / 3,
                "mrope_section": [2, 1, 1],
            },
        },
        "the class default has neither indexer nor n-gram embeddings, which the class exists for, and the pairs that "
        "it shares among three position streams by default are a quarter of its head's, as Qwen3.5's are",
    ),
    "recurrent_gemma": (
        {"num_hidden_layers": 6, "num_key_value_heads": 1},
        "its pattern has three blocks, one of which attends; the published checkpoints have one head of keys for all "
        "queries, the class default has as many as there are queries",
    ),
    "rwkv": (
        {"num_hidden_layers": 6, "rescale_every": 3},
        "the published checkpoints have several times the blocks after which the stream is halved",
    ),
    "sarvam_mla": (
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 40.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 64,
            },
        },
        "the class translates the YaRN of the published config, which its default lacks",
    ),
    "stablelm/tiny-parallel": (
        {"use_parallel_residual": True, "qk_layernorm": True},
        "the wiring of StableLM 2 12B",
    ),
    "vaultgemma": (
        {"num_hidden_layers": 3, "layer_types": [FULL] * 3},
        "the published checkpoint attends in full on every block; the class default has windows",
    ),
    "xlstm": (
        {"hidden_size": 128, "embedding_dim": 128, "num_heads": 4},
        "the class rounds the widths of queries and values up to multiples of 64",
    ),
    "zamba2": (
        {"num_hidden_layers": 8, "layers_block_type": [LINEAR, "hybrid"] * 4},
        "two shared blocks take turns, and each is met twice",
    ),
    "zamba2/tiny-adapters": (
        {"use_shared_attention_adapter": True, "num_mem_blocks": 1},
        "Zamba2 1.2B has one shared block, with adapters for its attention too",
    ),
    "zamba2/tiny-no-rotary": ({"use_mem_rope": False}, "Zamba2 2.7B turns neither queries nor keys"),
    "zaya/tiny-sliding": (
        {
            "num_hidden_layers": 5,
            "layer_types": ["hybrid", "hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
            "sliding_window": 8,
        },
        "the class has windowed blocks with a rotary base of their own, which its default does not use",
    ),
}  # fmt: skip
"""model_type, or model_type/twin -> (config entries, dotted below the root; the reason)."""
