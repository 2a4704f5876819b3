"""The names themselves, and what each stands for where that is not our value."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tool:
    """Another tool.

    Attributes:
        url: its documentation.
        version: the version whose source was read.
        interface: the class that has the names.
        note: a sentence on the names of another class; empty where there is none.
    """

    url: str
    version: str
    interface: str
    note: str = ""


TOOLS = {
    "TransformerLens": Tool(
        "https://transformerlensorg.github.io/TransformerLens/",
        "4.3.0",
        "TransformerBridge",
        "`HookedTransformer`, read in TransformerLens 3.9.0 and gone from 4.3.0, has the names that end neither in "
        "`hook_in` nor in `hook_out`.",
    ),
    "nnterp": Tool("https://ndif-team.github.io/nnterp/", "1.3.0", "StandardizedTransformer"),
}

ROTARY = "rotary"
"""Stands among quirks for: on some block queries turn with the position."""


@dataclass(frozen=True)
class Unless:
    """Where a name that is the same elsewhere stands for another tensor.

    Attributes:
        quirk: slug of the quirk that tells, or :data:`ROTARY`.
        differs: how the tensor differs there, or :data:`ABSENT`; None where it is the same although a later one would
            tell otherwise.
    """

    quirk: str
    differs: str | None


@dataclass(frozen=True)
class Name:
    """A name of another tool.

    Attributes:
        value: our value's name.
        tool: a key of :data:`TOOLS`.
        name: as the tool writes it, with `{i}` for the block's index.
        differs: how the tensor differs from ours; None where it is the same.
        form: how it is held otherwise, or what it takes, where the numbers are the same.
        unless: where it is another tensor all the same; the first that holds tells.
        instead: our value of the tensor that it stands for, where it differs and we have one.
        needs: a quirk, or :data:`ROTARY`, without which the tool has no such name.
    """

    value: str
    tool: str
    name: str
    differs: str | None = None
    form: str | None = None
    unless: tuple[Unless, ...] = field(default=())
    instead: str | None = None
    needs: str | None = None


def _lens(
    value: str,
    name: str,
    *unless: Unless,
    differs: str | None = None,
    form: str | None = None,
    instead: str | None = None,
    needs: str | None = None,
) -> Name:
    return Name(value, "TransformerLens", name, differs, form, unless, instead, needs)


def _nnterp(value: str, name: str, *unless: Unless, form: str | None = None) -> Name:
    return Name(value, "nnterp", name, None, form, unless)


ABSENT = "no such name"
"""In place of how a tensor differs: the tool does not have the name there."""

QUOTIENT = "the quotient, before the gain and the bias"
HEADS = "with the axes batch, position, head, width"
TURNED = Unless("norm-after-rotary", "turned, but before the norm that follows")
SCALED = Unless("scaled-residual-adds", "times the block's factor in Granite's adapters, without it in others")
RETURNED = (
    Unless("sandwich-norms", "what the module returns, before the norm that follows it"),
    Unless("post-norms", "what the module returns, before the norm that follows it"),
    Unless("residual-inside-module", "what the module returns, with the stream in it"),
)
GATED = (
    Unless("output-gate", "after the gate"),
    Unless("gated-query", "after the gate"),
    Unless("sub-norms", "after the norm, where it stands in the attention"),
    Unless("sink-scaled-heads", "after the heads' factors, where the adapter computes them"),
)
LATENT = Unless("latent-attention", None)
PART = Unless("latent-attention", "the part that turns alone; `hook_q` and `hook_k` are the whole")
PROJECTED = (
    LATENT,
    Unless(ROTARY, "as projected, before they turn"),
    Unless("qk-norm", "as projected, before the norm"),
)

NAMES = (
    _lens(
        "token_embeddings",
        "hook_embed",
        Unless("normed-embeddings", "after the norm that follows, in Bloom's and ModernBERT's adapters"),
        Unless("embedding-multiplier", "times the multiplier in Granite's adapters, without it in others"),
    ),
    _lens("final_norm_output", "ln_final.hook_out"),
    _lens("final_norm_output", "ln_final.hook_normalized", differs=QUOTIENT),
    _lens("lm_head_output", "unembed.hook_out"),
    _lens("layer_input", "blocks.{i}.hook_resid_pre"),
    _lens("layer_mid", "blocks.{i}.hook_resid_mid"),
    _lens("layer_output", "blocks.{i}.hook_resid_post"),
    _lens("attention_norm_output", "blocks.{i}.ln1.hook_out"),
    _lens("attention_norm_output", "blocks.{i}.ln1.hook_normalized", differs=QUOTIENT),
    _lens(
        "attention_norm_output",
        "blocks.{i}.hook_attn_in",
        Unless("latent-attention", ABSENT),
        differs="the stream before the norm, once a head, with `use_attn_in`",
        instead="layer_input",
    ),
    _lens("mlp_norm_output", "blocks.{i}.ln2.hook_out"),
    _lens("mlp_norm_output", "blocks.{i}.ln2.hook_normalized", differs=QUOTIENT),
    _lens("mlp_input", "blocks.{i}.mlp.hook_in"),
    _lens(
        "mlp_input",
        "blocks.{i}.hook_mlp_in",
        Unless("post-norms", None),
        differs="the stream before the norm, with `use_hook_mlp_in` (up to 3.2.1 the bridge gave the MLP's input)",
        instead="layer_mid",
    ),
    _lens("attention_output", "blocks.{i}.hook_attn_out", SCALED),
    _lens("mlp_output", "blocks.{i}.hook_mlp_out", SCALED),
    _lens("attention_queries", "blocks.{i}.attn.hook_rot_q", PART, TURNED, form=HEADS, needs=ROTARY),
    _lens("attention_queries", "blocks.{i}.attn.hook_q", *PROJECTED, form=HEADS),
    _lens("attention_keys", "blocks.{i}.attn.hook_rot_k", PART, TURNED, form=HEADS, needs=ROTARY),
    _lens("attention_keys", "blocks.{i}.attn.hook_k", *PROJECTED, form=HEADS),
    _lens(
        "attention_values",
        "blocks.{i}.attn.hook_v",
        Unless("value-norm", "as projected, before the norm"),
        form=HEADS,
    ),
    _lens(
        "attention_scores",
        "blocks.{i}.attn.hook_attn_scores",
        form="where the adapter computes the attention; where it leaves that to Hugging Face's module, the pattern",
    ),
    _lens("attention_probabilities", "blocks.{i}.attn.hook_pattern"),
    _lens("attention_head_outputs", "blocks.{i}.attn.hook_z", *GATED, form=HEADS),
    _lens("attention_premix", "blocks.{i}.attn.hook_z", form="with the heads apart"),
    _lens("mlp_neurons", "blocks.{i}.mlp.hook_post", Unless("mixture-of-experts", "what a mixture returns")),
    _lens("router_logits", "blocks.{i}.mlp.gate.hook_out", form="`mlp.router.hook_out` in GPT-OSS's adapter"),
    _lens("expert_indices", "blocks.{i}.mlp.hook_expert_indices"),
    _lens(
        "expert_weights",
        "blocks.{i}.mlp.hook_expert_weights",
        form="over all experts, zero where one is not chosen; in `HookedTransformer`'s Mixtral before any is",
    ),
    _nnterp("input_ids", "input_ids"),
    _nnterp("attention_mask", "attention_mask"),
    _nnterp("input_size", "input_size"),
    _nnterp("token_embeddings", "token_embeddings"),
    _nnterp("layer_input", "layers_input[i]"),
    _nnterp("layer_output", "layers_output[i]"),
    _nnterp("attention_norm_output", "attentions_input[i]"),
    _nnterp("attention_output", "attentions_output[i]", *RETURNED),
    _nnterp("mlp_input", "mlps_input[i]"),
    _nnterp("mlp_output", "mlps_output[i]", *RETURNED),
    _nnterp("attention_probabilities", "attention_probabilities[i]", form="with `enable_attention_probs=True`"),
    _nnterp("final_norm_output", "ln_final.output"),
    _nnterp("lm_head_output", "lm_head.output"),
    _nnterp("logits", "logits"),
    _nnterp("next_token_probs", "next_token_probs"),
)
