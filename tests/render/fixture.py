"""Records for the tests of the renderer: composed in code, valid under the schema, shaped like the four families.

The sizes are those of the published configs; digests, errors and edits are stand-ins, which is why these records are
only ever written to a temporary directory. ``python tests/render/fixture.py DIR`` writes them for a look at the site.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from probe.schema import Record

ATTENTION = """\
attention_queries|Queries|batch num_heads seq qk_head_dim|The queries, ready for the scores|op attention_interface_1 1
attention_keys|Keys|batch num_kv_heads seq qk_head_dim|The keys, ready for the scores|op attention_interface_1 2
attention_values|Values|batch num_kv_heads seq head_dim|The values, before the pattern mixes them|op attention_interface_1 3
attention_scores|Pattern|batch num_heads query key|The masked scores, before the softmax|op nn_functional_softmax_0 0
attention_probabilities|Pattern|batch num_heads query key|The pattern: one distribution over keys a query|op nn_functional_dropout_0 0
attention_head_outputs|HeadOutputs|batch seq num_heads head_dim|What each head mixed, head by head|op attention_interface_1 0
attention_premix|HeadOutputs|batch seq num_heads head_dim|All heads side by side, as o_proj receives them|in o_proj 0"""
MLP = """\
mlp_activation|Neurons|batch seq intermediate_size|The activation function's output|out act_fn 0
mlp_neurons|Neurons|batch seq intermediate_size|What the down projection receives|in down_proj 0"""
MIXTURE = """\
router_logits|RouterLogits|batch seq num_experts|One logit an expert, before scoring|out router.proj 0
expert_weights|ExpertWeights|batch seq top_k|The factor on each chosen expert|in experts 2
expert_indices|ExpertIndices|batch seq top_k|Which experts a token was sent to|in experts 1
expert_outputs|ExpertOutputs|batch seq top_k hidden_size|Each slot's weighted output|op weighted_out_view_0 0
routed_output|Residual|batch seq hidden_size|The routed experts' sum|out experts 0
shared_expert_output|Residual|batch seq hidden_size|The dense expert beside the mixture|out shared_experts 0"""
ROOT = """\
input_ids|Tokens|batch seq|The token ids of the call|in . 0
attention_mask|Tokens|batch seq|The mask of the call; zero is padding|in . 1
token_embeddings|Residual|batch seq hidden_size|What the embedding returns|out embed_tokens 0
final_norm_output|Residual|batch seq hidden_size|The stream after the last norm|out norm 0
lm_head_output|Logits|batch seq vocab_size|The head's output, before any cap|out lm_head 0
logits|Logits|batch seq vocab_size|The logits the model returns|out . 0
next_token_probs|NextTokenProbs|batch vocab_size|The distribution over the next token|out . 0"""
EAGER = {"attention_scores", "attention_probabilities", "attention_head_outputs"}
EAGER_REASON = "Only an eager load builds the pattern; load with attn_implementation='eager'."
WORDS = {"in": "what {} is called with", "out": "what {} returns", "op": "inside the forward, at {}"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Builder:
    """Builds the value rows of one checkpoint."""

    def __init__(self, kind: str, sizes: dict[str, int]) -> None:
        self.kind, self.sizes, self.rows = kind, sizes, []  # type: str, dict[str, int], list[dict[str, Any]]

    def add(
        self, host: str, module: str, spec: str, blocks: Sequence[int] | None, absent: str | None = None
    ) -> None:
        """Adds the rows of ``spec`` on ``host``; with ``absent`` they exist nowhere, for that reason."""
        for line in spec.splitlines():
            name, layout, dims, text, at = line.split("|")
            side, path, element = at.split()
            here = [d.rstrip(",") for d in dims.split()]
            ran = self.kind != "config"
            gone = absent is not None
            native = host.replace("layers[i]", "layers.{i}").replace("model.", "model.language_model.", 1)
            full = native if path == "." or side == "op" else f"{native}.{path}"
            self.rows.append(
                {
                    "host": host,
                    "module": module,
                    "name": name,
                    "layout": layout,
                    "dims": here,
                    "description": text,
                    "location": None if gone else {"in": f"{path}.input", "out": f"{path}.output"}.get(
                        side, f"source.{path}.output" if element == "0" else f"source.{path}.inputs[0][{element}]"
                    ),
                    "read_at": "nowhere: this checkpoint does not have it" if gone else WORDS[side].format(path),
                    "hf": None if gone else {"path": full, "side": side, "element": path if side == "op" else 0},
                    "blocks": [] if gone else (None if blocks is None else list(blocks)),
                    "needs": "eager" if name in EAGER and not gone else None,
                    "reason": absent or (EAGER_REASON if name in EAGER else None),
                    "shape": [{"batch": 1, "seq": 9, "query": 9, "key": 9}.get(d, self.sizes.get(d, 4)) for d in here]
                    if ran and not gone else None,
                    "reads": False if gone else (True if ran else None),
                    "edits": False if gone or name in ("next_token_probs", "input_ids") else (True if ran else None),
                    "edit": {"logits": 0.4, "exact": 2e-6 if name.endswith("_output") else None}
                    if ran and not gone and name not in ("next_token_probs", "input_ids") else None,
                    "why": "built on the meta device; nothing ran" if not ran and not gone else None,
                }
            )


def sublayer(host: str, kind: str, module: str, pre: str | None, post: str | None, out: str) -> dict[str, Any]:
    return {
        "host": host, "kind": kind, "module": module, "pre_norm": pre, "post_norm": post, "contribution": out,
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
            lines += [f"        ({p}): Linear(in_features=64, out_features=64, bias=False)" for p in ("q_proj", "o_proj")]
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
            found.append({"name": "block sum", "expression": shape["identity"], "blocks": here, "holds": True,
                          "max_abs_error": 1e-6, "tolerance": 1e-5, "dtype": dtype, "reason": None})
        else:
            [f] = [f for f in found if f["expression"] == shape["identity"]]
            f["blocks"] = sorted(f["blocks"] + here)
    whole = list(range(len(blocks)))
    for name, expression, error in (
        ("pattern rows", "self_attn.attention_probabilities.sum(-1) == 1", 2e-7),
        ("head outputs", "self_attn.attention_probabilities @ attention_values == attention_head_outputs", 5e-7),
        ("projection", "o_proj(self_attn.attention_premix) == o_proj.output", 0.0),
    ):
        found.append({"name": name, "expression": expression, "blocks": whole, "holds": True, "max_abs_error": error,
                      "tolerance": 1e-5, "dtype": dtype, "reason": None})
    return found


def vision(kind: str, title: str, depth: int, sizes: dict[str, int], names: tuple[str, str], norm: str) -> dict[str, Any]:
    b = Builder(kind, sizes)
    whole = range(depth)
    block, attention = names
    b.add("model.vision", title.replace(" ", "") + "Model", """\
image_token_mask|ImageTokenMask|batch seq|Which positions hold image tokens|in . 0
patch_embeddings|Patches|images patches vision_hidden_size|One row a patch, before positions|out patch_embed 0
tower_output|Patches|images patches vision_hidden_size|The encoder's last stream|out encoder 0
image_features|ImageFeatures|image_tokens hidden_size|What the text model receives|op inputs_embeds_masked_scatter_0 1""", None)
    b.add("model.vision.layers[i]", block, """\
layer_input|Patches|images patches vision_hidden_size|The stream entering the block|in . 0
attention_norm_output|Patches|images patches vision_hidden_size|The normed stream for the attention|out input_layernorm 0
layer_mid|Patches|images patches vision_hidden_size|The stream between the two adds|in post_attention_layernorm 0
mlp_norm_output|Patches|images patches vision_hidden_size|The normed stream for the MLP|out post_attention_layernorm 0
mlp_input|Patches|images patches vision_hidden_size|What the MLP is called with|in mlp 0
layer_output|Patches|images patches vision_hidden_size|The stream leaving the block|out . 0""", whole)
    b.add("model.vision.layers[i].self_attn", attention, ATTENTION, whole)
    b.add("model.vision.layers[i].self_attn", attention,
          "attention_output|Patches|images patches vision_hidden_size|What the attention adds|out . 0", whole)
    b.add("model.vision.layers[i].mlp", block.replace("EncoderLayer", "MLP"), MLP, whole)
    b.add("model.vision.layers[i].mlp", block.replace("EncoderLayer", "MLP"),
          "mlp_output|Patches|images patches vision_hidden_size|What the MLP adds|out . 0", whole)
    post = ("post_attention_layernorm", "post_feedforward_layernorm") if norm == "sandwich" else (None, None)
    pre = "pre_feedforward_layernorm" if norm == "sandwich" else "post_attention_layernorm"
    shape = {
        "label": "vision block", "layer_type": None, "topology": "sequential", "module": block, "sizes": sizes,
        "sublayers": [sublayer("self_attn", "attention", attention, "input_layernorm", post[0], "attention_output"),
                      sublayer("mlp", "mlp", block.replace("EncoderLayer", "MLP"), pre, post[1], "mlp_output")],
        "factors": [], "lends": None,
        "identity": "vision.layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output",
    }
    return {
        "title": title, "module": title.replace(" ", "") + "Model", "sizes": {"num_layers": depth, **sizes},
        "path": [
            {"label": "image", "value": None, "note": "pixel_values", "repeat": None, "shape": [1, 3, 336, 336]},
            {"label": "patch_embed", "value": "patch_embeddings", "note": None, "repeat": None, "shape": None},
            {"label": "layers", "value": "tower_output", "note": None, "repeat": depth, "shape": None},
            {"label": "projector", "value": None, "note": "fewer image tokens than patches", "repeat": None, "shape": None},
            {"label": "image_features", "value": "image_features", "note": "at the scatter", "repeat": None, "shape": None},
            {"label": "layers[0].input", "value": None, "note": "at image_token_mask", "repeat": None, "shape": None},
        ],
        "rows": "One row an image: its patches, padded up to the longest.", "positions": "A learned embedding for each axis, and a 2D rotary.",
        "masking": "No causal mask: every patch attends to every other.", "final_norm": "None: the encoder's output is served as it is.",
        "shapes": [shape], "blocks": [0] * depth, "values": b.rows,
        "identities": identities([shape], [0] * depth) if kind != "config" else [],
        "experiments": [experiment("padded-patches", "Padded patches", "Rows beyond the image's patches are masked as keys.", None)],
    }


def experiment(slug: str, label: str, statement: str, blocks: list[int] | None, verdict: str = "yes") -> dict[str, Any]:
    return {"slug": slug, "label": label, "verdict": verdict, "blocks": blocks, "statement": statement,
            "measured": {"max_abs_difference": 3e-7, "compared": 12}}


def compose(
    family: str, title: str, checkpoint: str, kind: str, listed: list[dict[str, Any]], *, root: str, block: str,
    layer_types: list[str], shapes: list[dict[str, Any]], blocks: list[int], sizes: dict[str, int], b: Builder,
    experiments: list[dict[str, Any]], tower: dict[str, Any] | None, subtitle: str, block_sizes: dict[str, list[int]],
) -> dict[str, Any]:
    return {
        "schema": 1, "family": family,
        "about": {
            "title": title, "subtitle": subtitle, "module": f"families.{family}", "checkpoints": listed,
            "doc": f"{title}, text.\n\nThe *contributions* are served unscaled:\n\n- `attention_output` is what the "
                   "attention adds;\n- `mlp_output` is what the MLP adds.\n",
            "declared": [{"name": "RENAME", "value": "{'feed_forward': 'mlp', 'vision_model': 'vision'}", "doc": None},
                         {"name": "ENVOYS", "value": "{Attention: Attention, Mlp: Mlp}", "doc": "Which envoy serves which module."}],
        },
        "checkpoint": {
            "id": checkpoint, "kind": kind, "architecture": root, "model_type": family.removesuffix("_text"),
            "task": "image-text-to-text" if tower else "text-generation", "digest": _digest(checkpoint), "dtype": "float32" if kind == "tiny" else "bfloat16",
            "parameters": 5_123_456_789 if kind == "config" else 134_515_008, "attn": "sdpa", "prompt": None if kind == "config" else "The Eiffel Tower is in the city of",
            "config_source": None,
        },
        "provenance": {"torch": "2.13.0", "transformers": "5.24.0", "nnsight": "0.8.1", "device": "cpu", "python": "3.11"},
        "evidence": {"twin": "tiny", "shared": ["the same classes", "the same block shapes, in the same order"],
                     "differs": ["sizes", "number of blocks"]} if kind == "config" else None,
        "sizes": sizes, "block_sizes": block_sizes,
        "config": [{"name": "architectures", "value": [root]}, *({"name": k, "value": v} for k, v in sizes.items()),
                   {"name": "tie_word_embeddings", "value": True}, {"name": "rms_norm_eps", "value": 1e-6}],
        "vision_config": [{"name": "patch_size", "value": 16}, {"name": "image_size", "value": None}] if tower else None,
        "layer_types": layer_types, "shapes": shapes, "blocks": blocks, "values": b.rows,
        "identities": identities(shapes, blocks) if kind != "config" else [], "experiments": experiments,
        "facts": [{"name": "eager_sdpa", "label": "Eager against sdpa", "value": 2e-5, "unit": None, "statement": "Largest difference of a logit between the two loads, in float32."},
                  {"name": "kv_cache", "label": "KV cache a token", "value": 18432, "unit": "bytes", "statement": "Keys and values kept for each token of context, in bfloat16."}],
        "printout": printout(root, block, blocks, b.rows), "vision": tower,
    }


def block_rows(b: Builder, block: str, n: int, mid: str, moe: Sequence[int], dense: Sequence[int]) -> None:
    """The rows that every family here has."""
    whole = range(n)
    b.add("model", block.replace("TextDecoderLayer", "ForConditionalGeneration").replace("DecoderLayer", "ForCausalLM"), ROOT, None)
    b.add("model.layers[i]", block, f"""\
layer_input|Residual|batch seq hidden_size|The stream entering the block|in . 0
attention_norm_output|Residual|batch seq hidden_size|The normed stream for the attention|out input_layernorm 0
layer_mid|Residual|batch seq hidden_size|The stream after the attention's add|in {mid} 0
mlp_norm_output|Residual|batch seq hidden_size|The normed stream for the MLP|out {mid} 0
mlp_input|Residual|batch seq hidden_size|What the MLP is called with|in mlp 0
layer_output|Residual|batch seq hidden_size|The stream leaving the block|out . 0""", whole)
    attention = block.replace("DecoderLayer", "Attention")
    b.add("model.layers[i].self_attn", attention, ATTENTION, whole)
    b.add("model.layers[i].self_attn", attention, "attention_output|Residual|batch seq hidden_size|What the attention adds|out . 0", whole)
    mlp = block.replace("DecoderLayer", "MLP")
    b.add("model.layers[i].mlp", mlp, MLP, dense)
    b.add("model.layers[i].mlp", mlp, "mlp_output|Residual|batch seq hidden_size|What the MLP adds|out . 0", whole)
    b.add("model.layers[i].mlp", mlp, MIXTURE, moe, None if moe else "No block of this checkpoint has a mixture of experts.")


def listing(*entries: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"id": i, "kind": k, "file": None if k == "missing" else i.replace("/", "--"),
         "reason": "Gated on the Hub, and no config of it is at hand." if k == "missing" else None}
        for i, k in entries
    ]


GEMMA = listing(("google/gemma-4-E2B-it", "config"), ("google/gemma-4-26B-A4B", "config"), ("google/gemma-4-31B", "missing"), ("tiny", "tiny"))
SCOUT = listing(("meta-llama/Llama-4-Scout-17B-16E-Instruct", "config"),
                ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "config"), ("meta-llama/Llama-4-Scout-17B-16E", "missing"))
LLAMA = listing(("HuggingFaceTB/SmolLM2-135M-Instruct", "weights"), ("meta-llama/Meta-Llama-3.1-405B", "missing"))


def gemma4(checkpoint: str, kind: str, n: int, every: int, shared: int, moe: bool) -> dict[str, Any]:
    sizes = {"num_layers": n, "hidden_size": 1536, "num_heads": 8, "num_kv_heads": 1, "head_dim": 256, "qk_head_dim": 256,
             "vocab_size": 262144, "intermediate_size": 6144, **({"num_experts": 128, "top_k": 8} if moe else {})}
    types = ["full_attention" if i % every == every - 1 else "sliding_attention" for i in range(n)]
    lends = ["borrowed" if i >= n - shared else "own" for i in range(n)]
    keys = sorted({(t, lend) for t, lend in zip(types, lends, strict=True)}, key=lambda k: (k[1] != "own", k[0] != "sliding_attention"))
    b = Builder(kind, sizes)
    whole = range(n)
    block_rows(b, "Gemma4TextDecoderLayer", n, "pre_feedforward_layernorm", whole if moe else [], whole)
    b.add("model.layers[i]", "Gemma4TextDecoderLayer", "per_layer_output|Residual|batch seq hidden_size|What the per-layer branch adds|out post_per_layer_input_norm 0",
          [] if moe else whole, "This checkpoint has no per-layer embeddings." if moe else None)
    shapes = []
    for t, lend in keys:
        subs = [sublayer("self_attn", "attention", "Gemma4TextAttention", "input_layernorm", "post_attention_layernorm", "attention_output"),
                sublayer("mlp", "moe" if moe else "mlp", "Gemma4TextMLP", "pre_feedforward_layernorm", "post_feedforward_layernorm", "mlp_output")]
        if not moe:
            subs.append(sublayer("", "branch", "Gemma4TextDecoderLayer", None, "post_per_layer_input_norm", "per_layer_output"))
        wide = 512 if t == "full_attention" else 256
        total = "layers[i].input + self_attn.attention_output + mlp.mlp_output" + ("" if moe else " + per_layer_output")
        shapes.append({
            "label": t.replace("_", " ") + (" · mixture" if moe else "") + (f" · {lend} keys and values" if shared else ""),
            "layer_type": t, "topology": "sequential", "sublayers": subs,
            "factors": [{"name": "layer_scalar", "kind": "buffer", "applies_to": "sum", "contribution": None}],
            "identity": f"({total}) * layer_scalar == layer_output", "module": "Gemma4TextDecoderLayer",
            "sizes": {"hidden_size": 1536, "num_heads": 8, "num_kv_heads": 1, "head_dim": wide, "qk_head_dim": wide,
                      "intermediate_size": 12288 if lend == "borrowed" else 6144, **({"num_experts": 128, "top_k": 8} if moe else {})},
            "lends": lend if shared else None})
    blocks = [keys.index((t, lend)) for t, lend in zip(types, lends, strict=True)]
    full = [i for i, t in enumerate(types) if t == "full_attention"]
    exps = [
        experiment("sandwich-norms", "Sandwich norms", "Each sublayer is normed on the way in and on the way out.", list(whole)),
        experiment("scaled-residual-adds", "Scaled residual adds", "layer_scalar multiplies the block's sum.", list(whole)),
        experiment("qk-norm", "Query/key norms", "Scaling q_proj leaves the scores unchanged.", list(whole)),
        experiment("sliding-window", "Sliding window", "Keys outside the window do not move the query's output.", [i for i in whole if i not in full]),
        experiment("proportional-rotary", "Proportional rotary", "Only a part of each head turns with position.", full),
        experiment("logit-softcap", "Softcapped logits", "logits is 30·tanh(lm_head_output / 30).", None),
        *([experiment("borrowed-kv", "Borrowed keys and values", "The last blocks attend with earlier keys and values.", [i for i in whole if lends[i] == "borrowed"])] if shared else []),
        *([experiment("mixture-of-experts", "Mixture of experts", "Each token reaches 8 of 128 experts.", list(whole))] if moe else []),
        experiment("layernorm", "LayerNorm", "", None, "no") | {"statement": None},
        experiment("fp32-residual", "Float32 residual", "The twin was not loaded in half precision.", None, "inconclusive"),
    ]
    tower = vision(kind, "Gemma 4 ViT", 16, {"vision_hidden_size": 768, "num_heads": 12, "head_dim": 64, "intermediate_size": 3072, "hidden_size": 1536},
                   ("Gemma4VisionEncoderLayer", "Gemma4VisionAttention"), "sandwich") if kind == "config" else None
    return compose("gemma4_text", "Gemma 4", checkpoint, kind, GEMMA, root="Gemma4ForConditionalGeneration", block="Gemma4TextDecoderLayer",
                   layer_types=types, shapes=shapes, blocks=blocks, sizes=sizes, b=b, experiments=exps, tower=tower,
                   subtitle="A sandwich block whose sum a per-block scalar multiplies.",
                   block_sizes={"head_dim": [shapes[s]["sizes"]["head_dim"] for s in blocks]})


def llama4(checkpoint: str, step: int) -> dict[str, Any]:
    n = 48
    sizes = {"num_layers": n, "hidden_size": 5120, "num_heads": 40, "num_kv_heads": 8, "head_dim": 128, "qk_head_dim": 128,
             "vocab_size": 202048, "intermediate_size": 16384, "num_experts": 128 if step == 2 else 16, "top_k": 1}
    types = ["full_attention" if i % 4 == 3 else "chunked_attention" for i in range(n)]
    moe = [i for i in range(n) if i % step == step - 1]
    keys = sorted({(types[i], i in moe) for i in range(n)})
    b = Builder("config", sizes)
    block_rows(b, "Llama4TextDecoderLayer", n, "post_attention_layernorm", moe, [i for i in range(n) if i not in moe])
    why = "The router scales each expert's input by a dense score, so there is no such factor."
    b.rows = [
        {**r, "location": None, "hf": None, "blocks": [], "reads": False, "edits": False, "why": None, "reason": why, "read_at": "nowhere: the family does not serve it"}
        if r["name"] in ("expert_weights", "expert_outputs") else r for r in b.rows
    ]
    shapes = [{
        "label": t.replace("_", " ") + (" · mixture" if m else " · dense"), "layer_type": t, "topology": "sequential",
        "sublayers": [sublayer("self_attn", "attention", "Llama4TextAttention", "input_layernorm", None, "attention_output"),
                      sublayer("mlp", "moe" if m else "mlp", "Llama4TextMoe" if m else "Llama4TextMLP", "post_attention_layernorm", None, "mlp_output")],
        "factors": [], "identity": "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output",
        "module": "Llama4TextDecoderLayer", "lends": None,
        "sizes": {k: v for k, v in sizes.items() if k != "num_layers"} | {"intermediate_size": 8192 if m else 16384}} for t, m in keys]
    blocks = [keys.index((types[i], i in moe)) for i in range(n)]
    exps = [
        experiment("chunked-attention", "Chunked attention", "The pattern is zero across a chunk's edge.", [i for i in range(n) if i % 4 != 3]),
        experiment("nope-blocks", "Blocks without rotary", "Queries and keys do not move with position.", [i for i in range(n) if i % 4 == 3]),
        experiment("mixture-of-experts", "Mixture of experts", "A token reaches one routed expert and the shared one.", moe),
    ]
    tower = vision("config", "Llama 4 ViT", 34, {"vision_hidden_size": 1408, "num_heads": 16, "head_dim": 88, "intermediate_size": 5632, "hidden_size": 5120},
                   ("Llama4VisionEncoderLayer", "Llama4VisionAttention"), "pre")
    return compose("llama4_text", "Llama 4", checkpoint, "config", SCOUT, root="Llama4ForConditionalGeneration", block="Llama4TextDecoderLayer",
                   layer_types=types, shapes=shapes, blocks=blocks, sizes=sizes, b=b, experiments=exps, tower=tower,
                   subtitle="A pre-norm block with a mixture of experts; every fourth block attends without rotary.", block_sizes={})


def llama(topology: str = "sequential") -> dict[str, Any]:
    n = 30
    sizes = {"num_layers": n, "hidden_size": 576, "num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "qk_head_dim": 64, "vocab_size": 49152, "intermediate_size": 1536}
    b = Builder("weights", sizes)
    block_rows(b, "LlamaDecoderLayer", n, "post_attention_layernorm", [], range(n))
    parallel = topology == "parallel"
    subs = [sublayer("self_attn", "attention", "LlamaAttention", "input_layernorm", None, "attention_output") | {"parallel_with_next": parallel},
            sublayer("mlp", "mlp", "LlamaMLP", "post_attention_layernorm", None, "mlp_output")]
    shape = {"label": "attention · MLP", "layer_type": None, "topology": topology, "sublayers": subs, "factors": [], "lends": None,
             "identity": "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output", "module": "LlamaDecoderLayer",
             "sizes": {k: v for k, v in sizes.items() if k != "num_layers"}}
    return compose("llama", "Llama", "HuggingFaceTB/SmolLM2-135M-Instruct", "weights", LLAMA, root="LlamaForCausalLM", block="LlamaDecoderLayer",
                   layer_types=["full_attention"] * n, shapes=[shape], blocks=[0] * n, sizes=sizes, b=b, tower=None, block_sizes={},
                   experiments=[experiment("grouped-query-attention", "Grouped-query attention", "Three query heads share one key head.", list(range(n)))],
                   subtitle="A pre-norm block with grouped queries; every block has the same shape.")


def records() -> list[Record]:
    """All records of the fixture, validated."""
    made = [
        gemma4("google/gemma-4-E2B-it", "config", 35, 5, 20, False), gemma4("google/gemma-4-26B-A4B", "config", 30, 6, 0, True),
        gemma4("tiny", "tiny", 8, 2, 4, False), llama4("meta-llama/Llama-4-Scout-17B-16E-Instruct", 1),
        llama4("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", 2), llama(),
    ]
    return [Record.model_validate(m) for m in made]


def write(directory: Path) -> Path:
    """Writes the records below ``directory`` and returns it."""
    for record in records():
        path = directory / record.family / (record.checkpoint.id.replace("/", "--") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record.as_json(), sort_keys=True, indent=1) + "\n")
    return directory


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
