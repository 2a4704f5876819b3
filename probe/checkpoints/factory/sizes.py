"""Small values for a config's numbers, by what their names say they count.

A rule sees the published value and the published sizes that it may be tied to (`Sizes`), so that the relations that a
class relies on survive: heads times head width, an inner width that is a multiple of the stream's, fewer KV heads than
heads. Values that no relation ties together come out different, so that a derivation cannot take one for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from probe.checkpoints import tokens

HEADS, KV_HEADS = 6, 2
HEAD_DIM = 16
WIDE_HEAD_DIM = 24
"""Head width where the published heads are not the stream's width cut in pieces; a third of it is even."""
ROTARY_HEAD_DIM, NOPE_HEAD_DIM = 8, 12
"""The parts of a latent attention's head that turn and that do not."""
VALUE_HEAD_DIM = 14
"""Width of a latent attention's values where the published ones are not as wide as its queries."""
HIDDEN = HEADS * HEAD_DIM
POSITIONS = 512
WINDOW = 8
ORIGINAL_POSITIONS = 64
"""What a scaled rotary was pre-trained on: longer than the prompt, as on the published model."""
EXPERTS, GROUPED_EXPERTS, GROUPS, TOP_K = 8, 12, 4, 3


@dataclass(frozen=True)
class Sizes:
    """The published sizes that others are compared with, and the small width of a head.

    Attributes:
        hidden, heads, kv_heads, head_dim: published values; 0 where the config has none.
        inner: published inner width of a state-space mixer, 0 where there is none.
        latent: published width of a latent attention's queries and keys, both parts; 0 where there is none.
        small_head_dim: head width of the twin.
        grouped: the router chooses groups of experts first.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    latent: int
    small_head_dim: int
    grouped: bool


def sizes(full: Mapping[str, Any]) -> Sizes:
    """Reads the published sizes from a config object's entries."""

    def read(*names: str) -> int:
        found = (full.get(name) for name in names)
        return next((value for value in found if isinstance(value, int) and value > 0), 0)

    hidden = read("hidden_size", "d_model", "n_embd")
    heads = read("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
    kv_heads = read("num_key_value_heads", "num_kv_heads", "kv_n_heads") or heads
    head_dim = read("head_dim", "kv_channels", "attention_head_dim") or (hidden // heads if heads else 0)
    expand = read("mamba_expand", "expand")
    groups = read("n_group", "num_expert_group")
    natural = heads * head_dim == hidden
    rotary, nope = read("qk_rope_head_dim"), read("qk_nope_head_dim")
    return Sizes(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inner=expand * hidden,
        latent=rotary + nope if nope else 0,
        small_head_dim=ROTARY_HEAD_DIM if head_dim == rotary else HEAD_DIM if natural else WIDE_HEAD_DIM,
        grouped=groups > 1,
    )


Rule = Callable[[int, Sizes], int]


def _fixed(value: int) -> Rule:
    return lambda published, _: min(published, value)


def _heads(published: int, s: Sizes) -> int:
    return HEADS if published <= s.heads or not s.heads else 2 * HEADS


def _kv_heads(published: int, s: Sizes) -> int:
    if published == 1:
        return 1
    if published == s.heads:
        return HEADS
    return KV_HEADS if published == s.kv_heads else 3


def _value_head(published: int, s: Sizes) -> int:
    """Values as wide as the queries, or narrower, as published."""
    narrow = s.latent and published < s.latent
    return min(published, VALUE_HEAD_DIM if narrow else ROTARY_HEAD_DIM + NOPE_HEAD_DIM)


def _hidden(published: int, s: Sizes) -> int:
    return HIDDEN


def _of_hidden(published: int, s: Sizes) -> int:
    """Keeps a width's ratio to the stream's, even."""
    return max(8, round(HIDDEN * published / s.hidden / 2) * 2) if s.hidden else HIDDEN


def _wide(small: int) -> Rule:
    """A feed-forward's width, unless it is the mixer's inner width."""
    return lambda published, s: (
        published // s.hidden * HIDDEN if s.inner and published == s.inner else min(published, small)
    )


def _experts(published: int, s: Sizes) -> int:
    return min(published, GROUPED_EXPERTS if s.grouped else EXPERTS)


RULES: tuple[tuple[str, Rule], ...] = (
    (r"num_labels|vocab_size_base|chunk_size_feed_forward|^heads_per_|token", lambda published, _: published),
    (r"unpadded_vocab_size", _fixed(300)),
    (r"vocab_size", _fixed(tokens.VOCAB_SIZE)),
    (r"^(embedding_dim|hidden_size|d_model|n_embd|dim_model|text_hidden_size)$", _hidden),
    (r"^(temporal_|spatial_)?patch_size$", _fixed(4)),
    (r"^image_size$", _fixed(16)),
    (r"^num_position_embeddings$|^pos_emb_(height|width)$", _fixed(16)),
    (r"^(out|projection|projector)_hidden_size$", _hidden),
    (r"^hidden_size_per_layer_input$", _fixed(12)),
    (r"^(mamba_n_heads|mamba_num_heads|n_mamba_heads)$", lambda v, _: v if v <= 2 else 12),
    (r"^(mamba_d_head|mamba_head_dim|mamba_headdim)$", lambda v, s: 16),
    (r"^mamba_d_ssm$", _fixed(192)),
    (r"^(mamba_d_state|state_size|ssm_state_size)$", _fixed(12)),
    (r"^(mamba_n_groups|mamba_ngroups|n_groups)$", lambda v, _: 1 if v == 1 else 3),
    (r"(time_step_rank|dt_rank)$", _of_hidden),
    (r"^linear_num_key_heads$", lambda v, s: 2),
    (r"^(linear_num_value_heads|linear_num_heads)$", _fixed(4)),
    (r"^linear_key_head_dim$", _fixed(12)),
    (r"^(linear_value_head_dim|linear_head_dim)$", _fixed(16)),
    (r"^index(er)?_n_heads$", _fixed(4)),
    (r"^index(er)?_head_dim$", _fixed(16)),
    (r"^index_topk$", _fixed(6)),
    (r"^index_topk_blocks$", _fixed(2)),
    (r"^index_block_size$", _fixed(4)),
    (r"^(.*_)?(num_key_value_heads|num_kv_heads|kv_n_heads|num_query_groups)$", _kv_heads),
    (r"^(.*_)?(num_attention_heads|n_heads?|attention_heads|num_heads)(_per_layer)?$", _heads),
    (r"^qk_head_dim$", _fixed(ROTARY_HEAD_DIM + NOPE_HEAD_DIM)),
    (r"^qk_nope_head_dim$", _fixed(NOPE_HEAD_DIM)),
    (r"^qk_rope_head_dim$", _fixed(ROTARY_HEAD_DIM)),
    (r"^v_head_dim$", _value_head),
    (r"^(.*_)?(head_dim|kv_channels|dim_head)$", lambda v, s: s.small_head_dim),
    (r"^global_head_dim$", _fixed(2 * WIDE_HEAD_DIM)),
    (r"^query_pre_attn_scalar$", lambda v, s: s.small_head_dim if v == s.head_dim else v),
    (r"^rotary_dim$", lambda v, s: max(4, s.small_head_dim * v // s.head_dim // 2 * 2)),
    (r"^(lru_width|attention_hidden_size|word_embed_proj_dim|router_hidden_size|ple_embed_dim)$", _of_hidden),
    (r"^dim_model_base$", _of_hidden),
    (r"^(moe|expert)_(ffn_hidden|intermediate)_size$", _fixed(56)),
    (r"shared.*intermediate_size$", lambda v, s: v if v == 0 else 72),
    (r"^(prefix_)?dense_intermediate_size$|^intermediate_size_mlp$", _fixed(136)),
    (r"(intermediate_size|ffn_dim|n_inner|dim_ff|dff|ffn_hidden_size|hidden_size_mlp)$", _wide(160)),
    (r"^(num|n)_groups?$|^num_expert_group$", lambda v, _: v if v <= 1 else GROUPS),
    (r"^topk_group$", lambda v, _: min(v, 2)),
    (r"^(num_experts_per_tok(en)?|moe_topk|moe_top_k|moe_k|top_k_experts|num_selected_experts)$", _fixed(TOP_K)),
    (r"shared_experts$", _fixed(2)),
    (r"^zero_expert_num$", _fixed(3)),
    (r"^(moe_)?(num_(local_)?experts|n_routed_experts)$", _experts),
    (r"^q_lora_rank$", _fixed(36)),
    (r"^kv_lora_rank$", _fixed(28)),
    (r"^o_lora_rank$", _fixed(20)),
    (r"_(lora_)?rank$|^hc_lowrank$", _fixed(10)),
    (r"^local_attention$", _fixed(2 * WINDOW)),
    (r"(sliding_window|window_size|window_len)$", _fixed(WINDOW)),
    (r"(chunk_size|^block_size)$", _fixed(WINDOW)),
    (r"^(floor_scale|log_scaling_n_floor)$", _fixed(WINDOW)),
    (r"^original_max_position_embeddings$", _fixed(ORIGINAL_POSITIONS)),
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|_length)$", _fixed(POSITIONS)),
    (r"^position_bias_num_buckets$", _fixed(16)),
    (r"^position_bias_max_distance$", _fixed(32)),
    (r"^rel_extent$", _fixed(16)),
    (r"^d_rel$", _fixed(8)),
)  # fmt: skip
"""First match wins; the first row holds what must not be taken for a size."""

_COMPILED = tuple((re.compile(pattern), rule) for pattern, rule in RULES)


def small(name: str, published: Any, s: Sizes) -> Any:
    """The twin's value of a config entry; the published one where no rule knows the name or it is no size.

    A list of sizes, one a block, is shrunk entry by entry.
    """
    if isinstance(published, list) and published and all(_is_size(v) for v in published):
        return [small(name, value, s) for value in published]
    if not _is_size(published):
        return published
    for pattern, rule in _COMPILED:
        if pattern.search(name):
            return rule(published, s)
    return published


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def rotary_factor(factor: float, head_dim: int) -> float:
    """The share of the head that turns, changed only where it is no even number of dimensions, at least four."""
    turned = int(head_dim * factor)
    return factor if turned % 2 == 0 and turned >= 4 else max(4, turned // 2 * 2) / head_dim


def token_ids(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Ids within the small vocabulary for every special token that a config names; one that it lacks stays lacking."""
    found = {}
    for name, value in raw.items():
        if re.search(r"_token_(id|index|ids)$", name) and value is not None:
            found[name] = _TOKENS.get(name.rpartition("_token_")[0], tokens.UNK)
    return found


_TOKENS = {
    "pad": tokens.PAD,
    "eos": tokens.EOS,
    "bos": tokens.BOS,
    "sep": tokens.EOS,
    "cls": tokens.BOS,
    "decoder_start": tokens.BOS,
    "image": tokens.SPECIAL["<image>"],
    "vision_start": tokens.SPECIAL["<image_start>"],
    "vision_end": tokens.SPECIAL["<image_end>"],
    "video": tokens.SPECIAL["<|video|>"],
    "audio": tokens.SPECIAL["<audio>"],
}
