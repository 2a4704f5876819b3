"""What other tools call the standard values. Declared: nothing here was run, and each name has its source.

A name may stand for another tensor than ours, in general or on some families; ``differs`` then says how. The module is
light: the command line and the pages read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SOURCES = {
    "TransformerLens": "https://transformerlensorg.github.io/TransformerLens/",
    "nnterp": "https://ndif-team.github.io/nnterp/",
}

BEFORE_NORM = (
    "the stream before the norm, copied for each reader, where `HookedTransformer` has it; after the norm in the bridge"
)
BRANCH = "what the module returns, which is not what is added where a norm or a factor follows it"
AXES = "with the axes batch, position, head, width"


@dataclass(frozen=True)
class Name:
    """A name of another tool.

    Attributes:
        value: our value's name.
        tool: a key of :data:`SOURCES`.
        name: as the tool writes it, with `{i}` for the block's index.
        differs: how the tensor differs from ours; None where it is the same.
        form: how it is held otherwise, where only the layout differs.
    """

    value: str
    tool: str
    name: str
    differs: str | None = None
    form: str | None = None


def _lens(value: str, name: str, differs: str | None = None, form: str | None = None) -> Name:
    return Name(value, "TransformerLens", name, differs, form)


def _nnterp(value: str, name: str, differs: str | None = None) -> Name:
    return Name(value, "nnterp", name, differs)


NAMES = (
    _lens("token_embeddings", "hook_embed"),
    _lens("layer_input", "blocks.{i}.hook_resid_pre"),
    _lens("layer_mid", "blocks.{i}.hook_resid_mid"),
    _lens("layer_output", "blocks.{i}.hook_resid_post"),
    _lens("attention_output", "blocks.{i}.hook_attn_out"),
    _lens("mlp_output", "blocks.{i}.hook_mlp_out"),
    _lens("attention_norm_output", "blocks.{i}.hook_attn_in", BEFORE_NORM),
    _lens("attention_norm_output", "blocks.{i}.ln1.hook_normalized", "before the gain of an RMSNorm"),
    _lens("mlp_norm_output", "blocks.{i}.ln2.hook_normalized", "before the gain of an RMSNorm"),
    _lens("mlp_input", "blocks.{i}.hook_mlp_in", BEFORE_NORM),
    _lens("final_norm_output", "ln_final.hook_normalized", "before the gain of an RMSNorm"),
    _lens("attention_queries", "blocks.{i}.attn.hook_rot_q", form=AXES),
    _lens("attention_queries", "blocks.{i}.attn.hook_q", "before the rotary embedding, where there is one"),
    _lens("attention_keys", "blocks.{i}.attn.hook_rot_k", form=AXES),
    _lens("attention_keys", "blocks.{i}.attn.hook_k", "before the rotary embedding, where there is one"),
    _lens("attention_values", "blocks.{i}.attn.hook_v", form=AXES),
    _lens("attention_scores", "blocks.{i}.attn.hook_attn_scores"),
    _lens("attention_probabilities", "blocks.{i}.attn.hook_pattern"),
    _lens("attention_head_outputs", "blocks.{i}.attn.hook_z", form=AXES),
    _lens("mlp_neurons", "blocks.{i}.mlp.hook_post"),
    _lens("expert_indices", "blocks.{i}.mlp.hook_expert_indices"),
    _lens("expert_weights", "blocks.{i}.mlp.hook_expert_weights", "the softmax over all experts, before any is chosen"),
    _nnterp("token_embeddings", "token_embeddings"),
    _nnterp("layer_input", "layers_input[i]"),
    _nnterp("layer_output", "layers_output[i]"),
    _nnterp("attention_output", "attentions_output[i]", BRANCH),
    _nnterp("mlp_output", "mlps_output[i]", BRANCH),
    _nnterp("mlp_input", "mlps_input[i]"),
    _nnterp("attention_probabilities", "attention_probabilities[i]"),
    _nnterp("logits", "logits"),
    _nnterp("next_token_probs", "next_token_probs"),
)


def of(value: str) -> list[Name]:
    """The names that other tools have for a value, those that stand for the same tensor first."""
    return sorted((name for name in NAMES if name.value == value), key=lambda name: name.differs is not None)


def same(value: str, tool: str) -> str | None:
    """What a tool calls exactly this value; None where it has no name for it."""
    return next((name.name for name in of(value) if name.tool == tool and name.differs is None), None)


def standard(asked: str) -> Name | None:
    """Whose name was asked for: the whole of it with or without a block's number, its end, or that without `hook_`."""
    wanted = re.sub(r"\[\d+\]", "[i]", re.sub(r"\.\d+(?=\.|$)", ".{i}", asked))
    for name in sorted(NAMES, key=lambda name: name.differs is not None):
        end = name.name.rpartition(".")[2]
        if wanted in (name.name, end, end.removeprefix("hook_"), end.removesuffix("[i]")):
            return name
    return None
