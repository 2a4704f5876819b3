"""Parts of the fixture's records that the families share: sublayers, printout, identities, vision, the frame."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from tests.render.fixture_rows import ATTENTION, MLP, Builder


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sublayer(host: str, kind: str, module: str, pre: str | None, post: str | None, out: str) -> dict[str, Any]:
    return {
        "host": host,
        "kind": kind,
        "module": module,
        "pre_norm": pre,
        "post_norm": post,
        "contribution": out,
        "parallel_with_next": False,
    }


def runs(blocks: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The runs of equal entries as (first, last)."""
    start = 0
    for i in range(1, len(blocks) + 1):
        if i == len(blocks) or blocks[i] != blocks[start]:
            yield start, i - 1
            start = i


def printout(root: str, block: str, blocks: Sequence[int], rows: list[dict[str, Any]]) -> str:
    """A printout with the native modules, the standard names and the values."""
    lines = [f"{root}(", "  (embed_tokens): Embedding(32000, 64)", "  (layers): ModuleList("]
    for first, last in runs(blocks):
        span = f"({first})" if first == last else f"({first}-{last})"
        lines.append(f"    {span}: {'' if first == last else f'{last - first + 1} x '}{block}(")
        for child in ("self_attn", "mlp"):
            lines += [f"      ({child}): {block.replace('DecoderLayer', child.upper())}("]
            lines += [
                f"        ({p}): Linear(in_features=64, out_features=64, bias=False)" for p in ("q_proj", "o_proj")
            ]
            for row in rows:
                if row["host"] == f"model.layers[i].{child}" and first in (row["blocks"] or []):
                    dims = " ".join(row["dims"])
                    lines.append(f"        ({row['name']}) -> {row['layout']} [{dims}]: {row['description']}")
            lines.append("      )")
        lines += ["      (input_layernorm): RMSNorm()", "    )"]
    lines += ["  )", "  (norm): RMSNorm()", "  (lm_head): Linear(in_features=64, out_features=32000, bias=False)"]
    for row in rows:
        if row["host"] == "model":
            lines.append(f"  ({row['name']}) -> {row['layout']} [{' '.join(row['dims'])}]: {row['description']}")
    return "\n".join([*lines, ")"])


def identities(shapes: list[dict[str, Any]], blocks: list[int], dtype: str = "float32") -> list[dict[str, Any]]:
    found = []
    for index, shape in enumerate(shapes):
        here = [i for i, s in enumerate(blocks) if s == index]
        if not any(f["expression"] == shape["identity"] for f in found):
            found.append(
                {
                    "name": "block sum",
                    "expression": shape["identity"],
                    "blocks": here,
                    "holds": True,
                    "max_abs_error": 1e-6,
                    "tolerance": 1e-5,
                    "dtype": dtype,
                    "reason": None,
                }
            )
        else:
            [f] = [f for f in found if f["expression"] == shape["identity"]]
            f["blocks"] = sorted(f["blocks"] + here)
    whole = list(range(len(blocks)))
    for name, expression, error in (
        ("pattern rows", "self_attn.attention_probabilities.sum(-1) == 1", 2e-7),
        ("head outputs", "self_attn.attention_probabilities @ attention_values == attention_head_outputs", 5e-7),
        ("projection", "o_proj(self_attn.attention_premix) == o_proj.output", 0.0),
    ):
        found.append(
            {
                "name": name,
                "expression": expression,
                "blocks": whole,
                "holds": True,
                "max_abs_error": error,
                "tolerance": 1e-5,
                "dtype": dtype,
                "reason": None,
            }
        )
    return found


def vision(
    kind: str, title: str, depth: int, sizes: dict[str, int], names: tuple[str, str], norm: str
) -> dict[str, Any]:
    b = Builder(kind, sizes)
    whole = range(depth)
    block, attention = names
    b.add(
        "model.vision",
        title.replace(" ", "") + "Model",
        """\
image_token_mask|ImageTokenMask|batch seq|Which positions hold image tokens|in . 0
patch_embeddings|Patches|images patches vision_hidden_size|One row a patch, before positions|out patch_embed 0
tower_output|Patches|images patches vision_hidden_size|The encoder's last stream|out encoder 0
image_features|ImageFeatures|image_tokens hidden_size|What the text receives|op inputs_embeds_masked_scatter_0 1""",
        None,
    )
    b.add(
        "model.vision.layers[i]",
        block,
        """\
layer_input|Patches|images patches vision_hidden_size|The stream entering the block|in . 0
attention_norm_output|Patches|images patches vision_hidden_size|The attention's normed stream|out input_layernorm 0
layer_mid|Patches|images patches vision_hidden_size|The stream between the two adds|in post_attention_layernorm 0
mlp_norm_output|Patches|images patches vision_hidden_size|The normed stream for the MLP|out post_attention_layernorm 0
mlp_input|Patches|images patches vision_hidden_size|What the MLP is called with|in mlp 0
layer_output|Patches|images patches vision_hidden_size|The stream leaving the block|out . 0""",
        whole,
    )
    b.add("model.vision.layers[i].self_attn", attention, ATTENTION, whole)
    b.add(
        "model.vision.layers[i].self_attn",
        attention,
        "attention_output|Patches|images patches vision_hidden_size|What the attention adds|out . 0",
        whole,
    )
    b.add("model.vision.layers[i].mlp", block.replace("EncoderLayer", "MLP"), MLP, whole)
    b.add(
        "model.vision.layers[i].mlp",
        block.replace("EncoderLayer", "MLP"),
        "mlp_output|Patches|images patches vision_hidden_size|What the MLP adds|out . 0",
        whole,
    )
    post = ("post_attention_layernorm", "post_feedforward_layernorm") if norm == "sandwich" else (None, None)
    pre = "pre_feedforward_layernorm" if norm == "sandwich" else "post_attention_layernorm"
    shape = {
        "label": "vision block",
        "layer_type": None,
        "topology": "sequential",
        "module": block,
        "sizes": sizes,
        "sublayers": [
            sublayer("self_attn", "attention", attention, "input_layernorm", post[0], "attention_output"),
            sublayer("mlp", "mlp", block.replace("EncoderLayer", "MLP"), pre, post[1], "mlp_output"),
        ],
        "factors": [],
        "lends": None,
        "identity": "vision.layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output",
    }
    return {
        "title": title,
        "module": title.replace(" ", "") + "Model",
        "sizes": {"num_layers": depth, **sizes},
        "path": [
            {"label": "image", "value": None, "note": "pixel_values", "repeat": None, "shape": [1, 3, 336, 336]},
            {"label": "patch_embed", "value": "patch_embeddings", "note": None, "repeat": None, "shape": None},
            {"label": "layers", "value": "tower_output", "note": None, "repeat": depth, "shape": None},
            {
                "label": "projector",
                "value": None,
                "note": "fewer image tokens than patches",
                "repeat": None,
                "shape": None,
            },
            {
                "label": "image_features",
                "value": "image_features",
                "note": "at the scatter",
                "repeat": None,
                "shape": None,
            },
            {"label": "layers[0].input", "value": None, "note": "at image_token_mask", "repeat": None, "shape": None},
        ],
        "rows": "One row an image: its patches, padded up to the longest.",
        "positions": "A learned embedding for each axis, and a 2D rotary.",
        "masking": "No causal mask: every patch attends to every other.",
        "final_norm": "None: the encoder's output is served as it is.",
        "shapes": [shape],
        "blocks": [0] * depth,
        "values": b.rows,
        "identities": identities([shape], [0] * depth) if kind != "config" else [],
        "experiments": [
            experiment("padded-patches", "Padded patches", "Rows beyond the image's patches are masked as keys.", None)
        ],
    }


def experiment(slug: str, label: str, statement: str, blocks: list[int] | None, verdict: str = "yes") -> dict[str, Any]:
    return {
        "slug": slug,
        "label": label,
        "verdict": verdict,
        "blocks": blocks,
        "statement": statement,
        "measured": {"max_abs_difference": 3e-7, "compared": 12},
    }


def compose(
    family: str,
    title: str,
    checkpoint: str,
    kind: str,
    listed: list[dict[str, Any]],
    *,
    root: str,
    block: str,
    layer_types: list[str],
    shapes: list[dict[str, Any]],
    blocks: list[int],
    sizes: dict[str, int],
    b: Builder,
    experiments: list[dict[str, Any]],
    tower: dict[str, Any] | None,
    subtitle: str,
    block_sizes: dict[str, list[int]],
) -> dict[str, Any]:
    return {
        "schema": 1,
        "family": family,
        "about": {
            "title": title,
            "subtitle": subtitle,
            "module": f"families.{family}",
            "checkpoints": listed,
            "doc": f"{title}, text.\n\nThe *contributions* are served unscaled:\n\n- `attention_output` is what the "
            "attention adds;\n- `mlp_output` is what the MLP adds.\n",
            "declared": [
                {"name": "RENAME", "value": "{'feed_forward': 'mlp', 'vision_model': 'vision'}", "doc": None},
                {
                    "name": "ENVOYS",
                    "value": "{Attention: Attention, Mlp: Mlp}",
                    "doc": "Which envoy serves which module.",
                },
            ],
        },
        "checkpoint": {
            "id": checkpoint,
            "kind": kind,
            "architecture": root,
            "model_type": family.removesuffix("_text"),
            "task": "image-text-to-text" if tower else "text-generation",
            "digest": _digest(checkpoint),
            "dtype": "float32" if kind == "tiny" else "bfloat16",
            "parameters": 5_123_456_789 if kind == "config" else 134_515_008,
            "attn": "sdpa",
            "prompt": None if kind == "config" else "The Eiffel Tower is in the city of",
            "config_source": None,
        },
        "provenance": {
            "torch": "2.13.0",
            "transformers": "5.24.0",
            "nnsight": "0.8.1",
            "device": "cpu",
            "python": "3.11",
        },
        "evidence": {
            "twin": "tiny",
            "shared": ["the same classes", "the same block shapes, in the same order"],
            "differs": ["sizes", "number of blocks"],
        }
        if kind == "config"
        else None,
        "sizes": sizes,
        "block_sizes": block_sizes,
        "config": [
            {"name": "architectures", "value": [root]},
            *({"name": k, "value": v} for k, v in sizes.items()),
            {"name": "tie_word_embeddings", "value": True},
            {"name": "rms_norm_eps", "value": 1e-6},
        ],
        "vision_config": [{"name": "patch_size", "value": 16}, {"name": "image_size", "value": None}]
        if tower
        else None,
        "layer_types": layer_types,
        "shapes": shapes,
        "blocks": blocks,
        "values": b.rows,
        "identities": identities(shapes, blocks) if kind != "config" else [],
        "experiments": experiments,
        "facts": [
            {
                "name": "eager_sdpa",
                "label": "Eager against sdpa",
                "value": 2e-5,
                "unit": None,
                "statement": "Largest difference of a logit between the two loads, in float32.",
            },
            {
                "name": "kv_cache",
                "label": "KV cache a token",
                "value": 18432,
                "unit": "bytes",
                "statement": "Keys and values kept for each token of context, in bfloat16.",
            },
        ],
        "printout": printout(root, block, blocks, b.rows),
        "vision": tower,
    }
