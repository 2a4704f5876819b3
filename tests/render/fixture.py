"""Records for the tests of the renderer: composed in code, valid under the schema, shaped like the four families.

The sizes are those of the published configs; digests, errors and edits are stand-ins, which is why these records are
only ever written to a temporary directory. ``python -m tests.render.fixture RECORDS NOTES`` writes them, and the notes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from probe.schema import Record
from tests.render.fixture_parts import compose, experiment, sublayer, vision
from tests.render.fixture_rows import Builder, block_rows


def listing(*entries: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "kind": k,
            "file": None if k == "missing" else i.replace("/", "--"),
            "reason": "Gated on the Hub, and no config of it is at hand." if k == "missing" else None,
        }
        for i, k in entries
    ]


GEMMA = listing(
    ("google/gemma-4-E2B-it", "config"),
    ("google/gemma-4-26B-A4B", "config"),
    ("google/gemma-4-31B", "missing"),
    ("tiny", "tiny"),
)
SCOUT = listing(
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "config"),
    ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "config"),
    ("meta-llama/Llama-4-Scout-17B-16E", "missing"),
)
LLAMA = listing(("HuggingFaceTB/SmolLM2-135M-Instruct", "weights"), ("meta-llama/Meta-Llama-3.1-405B", "missing"))


def gemma4(checkpoint: str, kind: str, n: int, every: int, shared: int, moe: bool) -> dict[str, Any]:
    sizes = {
        "num_layers": n,
        "hidden_size": 1536,
        "num_heads": 8,
        "num_kv_heads": 1,
        "head_dim": 256,
        "qk_head_dim": 256,
        "vocab_size": 262144,
        "intermediate_size": 6144,
        **({"num_experts": 128, "top_k": 8} if moe else {}),
    }
    types = ["full_attention" if i % every == every - 1 else "sliding_attention" for i in range(n)]
    lends = ["borrowed" if i >= n - shared else "own" for i in range(n)]
    keys = sorted(
        {(t, lend) for t, lend in zip(types, lends, strict=True)},
        key=lambda k: (k[1] != "own", k[0] != "sliding_attention"),
    )
    b = Builder(kind, sizes)
    whole = range(n)
    block_rows(b, "Gemma4TextDecoderLayer", n, "pre_feedforward_layernorm", whole if moe else [], whole)
    b.add(
        "model.layers[i]",
        "Gemma4TextDecoderLayer",
        "per_layer_output|Residual|batch seq hidden_size|What its branch adds|out post_per_layer_input_norm 0",
        [] if moe else whole,
        "This checkpoint has no per-layer embeddings." if moe else None,
    )
    shapes = []
    for t, lend in keys:
        subs = [
            sublayer(
                "self_attn",
                "attention",
                "Gemma4TextAttention",
                "input_layernorm",
                "post_attention_layernorm",
                "attention_output",
            ),
            sublayer(
                "mlp",
                "moe" if moe else "mlp",
                "Gemma4TextMLP",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
                "mlp_output",
            ),
        ]
        if not moe:
            subs.append(
                sublayer("", "branch", "Gemma4TextDecoderLayer", None, "post_per_layer_input_norm", "per_layer_output")
            )
        wide = 512 if t == "full_attention" else 256
        total = "layers[i].input + self_attn.attention_output + mlp.mlp_output" + ("" if moe else " + per_layer_output")
        shapes.append(
            {
                "label": t.replace("_", " ")
                + (" · mixture" if moe else "")
                + (f" · {lend} keys and values" if shared else ""),
                "layer_type": t,
                "topology": "sequential",
                "sublayers": subs,
                "factors": [{"name": "layer_scalar", "kind": "buffer", "applies_to": "sum", "contribution": None}],
                "identity": f"({total}) * layer_scalar == layer_output",
                "module": "Gemma4TextDecoderLayer",
                "sizes": {
                    "hidden_size": 1536,
                    "num_heads": 8,
                    "num_kv_heads": 1,
                    "head_dim": wide,
                    "qk_head_dim": wide,
                    "intermediate_size": 12288 if lend == "borrowed" else 6144,
                    **({"num_experts": 128, "top_k": 8} if moe else {}),
                },
                "lends": lend if shared else None,
            }
        )
    blocks = [keys.index((t, lend)) for t, lend in zip(types, lends, strict=True)]
    full = [i for i, t in enumerate(types) if t == "full_attention"]
    exps = [
        experiment(
            "sandwich-norms", "Sandwich norms", "Each sublayer is normed on the way in and on the way out.", list(whole)
        ),
        experiment(
            "scaled-residual-adds", "Scaled residual adds", "layer_scalar multiplies the block's sum.", list(whole)
        ),
        experiment("qk-norm", "Query/key norms", "Scaling q_proj leaves the scores unchanged.", list(whole)),
        experiment(
            "sliding-window",
            "Sliding window",
            "Keys outside the window do not move the query's output.",
            [i for i in whole if i not in full],
        ),
        experiment("proportional-rotary", "Proportional rotary", "Only a part of each head turns with position.", full),
        experiment("logit-softcap", "Softcapped logits", "logits is 30·tanh(lm_head_output / 30).", None),
        *(
            [
                experiment(
                    "borrowed-kv",
                    "Borrowed keys and values",
                    "The last blocks attend with earlier keys and values.",
                    [i for i in whole if lends[i] == "borrowed"],
                )
            ]
            if shared
            else []
        ),
        *(
            [
                experiment(
                    "mixture-of-experts", "Mixture of experts", "Each token reaches 8 of 128 experts.", list(whole)
                )
            ]
            if moe
            else []
        ),
        experiment("layernorm", "LayerNorm", "", None, "no") | {"statement": None},
        experiment(
            "fp32-residual", "Float32 residual", "The twin was not loaded in half precision.", None, "inconclusive"
        ),
    ]
    tower = (
        vision(
            kind,
            "Gemma 4 ViT",
            16,
            {
                "vision_hidden_size": 768,
                "num_heads": 12,
                "head_dim": 64,
                "intermediate_size": 3072,
                "hidden_size": 1536,
            },
            ("Gemma4VisionEncoderLayer", "Gemma4VisionAttention"),
            "sandwich",
        )
        if kind == "config"
        else None
    )
    return compose(
        "gemma4_text",
        "Gemma 4",
        checkpoint,
        kind,
        GEMMA,
        root="Gemma4ForConditionalGeneration",
        block="Gemma4TextDecoderLayer",
        layer_types=types,
        shapes=shapes,
        blocks=blocks,
        sizes=sizes,
        b=b,
        experiments=exps,
        tower=tower,
        subtitle="A sandwich block whose sum a per-block scalar multiplies.",
        block_sizes={"head_dim": [shapes[s]["sizes"]["head_dim"] for s in blocks]},
    )


def llama4(checkpoint: str, step: int) -> dict[str, Any]:
    n = 48
    sizes = {
        "num_layers": n,
        "hidden_size": 5120,
        "num_heads": 40,
        "num_kv_heads": 8,
        "head_dim": 128,
        "qk_head_dim": 128,
        "vocab_size": 202048,
        "intermediate_size": 16384,
        "num_experts": 128 if step == 2 else 16,
        "top_k": 1,
    }
    types = ["full_attention" if i % 4 == 3 else "chunked_attention" for i in range(n)]
    moe = [i for i in range(n) if i % step == step - 1]
    keys = sorted({(types[i], i in moe) for i in range(n)})
    b = Builder("config", sizes)
    block_rows(b, "Llama4TextDecoderLayer", n, "post_attention_layernorm", moe, [i for i in range(n) if i not in moe])
    why = "The router scales each expert's input by a dense score, so there is no such factor."
    b.rows = [
        {
            **r,
            "location": None,
            "hf": None,
            "blocks": [],
            "reads": False,
            "edits": False,
            "why": None,
            "reason": why,
            "read_at": "nowhere: the family does not serve it",
        }
        if r["name"] in ("expert_weights", "expert_outputs")
        else r
        for r in b.rows
    ]
    shapes = [
        {
            "label": t.replace("_", " ") + (" · mixture" if m else " · dense"),
            "layer_type": t,
            "topology": "sequential",
            "sublayers": [
                sublayer("self_attn", "attention", "Llama4TextAttention", "input_layernorm", None, "attention_output"),
                sublayer(
                    "mlp",
                    "moe" if m else "mlp",
                    "Llama4TextMoe" if m else "Llama4TextMLP",
                    "post_attention_layernorm",
                    None,
                    "mlp_output",
                ),
            ],
            "factors": [],
            "identity": "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output",
            "module": "Llama4TextDecoderLayer",
            "lends": None,
            "sizes": {k: v for k, v in sizes.items() if k != "num_layers"}
            | {"intermediate_size": 8192 if m else 16384},
        }
        for t, m in keys
    ]
    blocks = [keys.index((types[i], i in moe)) for i in range(n)]
    exps = [
        experiment(
            "chunked-attention",
            "Chunked attention",
            "The pattern is zero across a chunk's edge.",
            [i for i in range(n) if i % 4 != 3],
        ),
        experiment(
            "nope-blocks",
            "Blocks without rotary",
            "Queries and keys do not move with position.",
            [i for i in range(n) if i % 4 == 3],
        ),
        experiment(
            "mixture-of-experts", "Mixture of experts", "A token reaches one routed expert and the shared one.", moe
        ),
    ]
    tower = vision(
        "config",
        "Llama 4 ViT",
        34,
        {"vision_hidden_size": 1408, "num_heads": 16, "head_dim": 88, "intermediate_size": 5632, "hidden_size": 5120},
        ("Llama4VisionEncoderLayer", "Llama4VisionAttention"),
        "pre",
    )
    return compose(
        "llama4_text",
        "Llama 4",
        checkpoint,
        "config",
        SCOUT,
        root="Llama4ForConditionalGeneration",
        block="Llama4TextDecoderLayer",
        layer_types=types,
        shapes=shapes,
        blocks=blocks,
        sizes=sizes,
        b=b,
        experiments=exps,
        tower=tower,
        subtitle="A pre-norm block with a mixture of experts; every fourth block attends without rotary.",
        block_sizes={},
    )


def llama(topology: str = "sequential") -> dict[str, Any]:
    n = 30
    sizes = {
        "num_layers": n,
        "hidden_size": 576,
        "num_heads": 9,
        "num_kv_heads": 3,
        "head_dim": 64,
        "qk_head_dim": 64,
        "vocab_size": 49152,
        "intermediate_size": 1536,
    }
    b = Builder("weights", sizes)
    block_rows(b, "LlamaDecoderLayer", n, "post_attention_layernorm", [], range(n))
    parallel = topology == "parallel"
    subs = [
        sublayer("self_attn", "attention", "LlamaAttention", "input_layernorm", None, "attention_output")
        | {"parallel_with_next": parallel},
        sublayer("mlp", "mlp", "LlamaMLP", "post_attention_layernorm", None, "mlp_output"),
    ]
    shape = {
        "label": "attention · MLP",
        "layer_type": None,
        "topology": topology,
        "sublayers": subs,
        "factors": [],
        "lends": None,
        "identity": "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output",
        "module": "LlamaDecoderLayer",
        "sizes": {k: v for k, v in sizes.items() if k != "num_layers"},
    }
    return compose(
        "llama",
        "Llama",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "weights",
        LLAMA,
        root="LlamaForCausalLM",
        block="LlamaDecoderLayer",
        layer_types=["full_attention"] * n,
        shapes=[shape],
        blocks=[0] * n,
        sizes=sizes,
        b=b,
        tower=None,
        block_sizes={},
        experiments=[
            experiment(
                "grouped-query-attention",
                "Grouped-query attention",
                "Three query heads share one key head.",
                list(range(n)),
            )
        ],
        subtitle="A pre-norm block with grouped queries; every block has the same shape.",
    )


def records() -> list[Record]:
    """All records of the fixture, validated."""
    made = [
        gemma4("google/gemma-4-E2B-it", "config", 35, 5, 20, False),
        gemma4("google/gemma-4-26B-A4B", "config", 30, 6, 0, True),
        gemma4("tiny", "tiny", 8, 2, 4, False),
        llama4("meta-llama/Llama-4-Scout-17B-16E-Instruct", 1),
        llama4("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", 2),
        llama(),
    ]
    return [Record.model_validate(m) for m in made]


def write(directory: Path) -> Path:
    """Writes the records below ``directory`` and returns it."""
    for record in records():
        path = directory / record.family / (record.checkpoint.id.replace("/", "--") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record.as_json(), sort_keys=True, indent=1) + "\n")
    return directory


NOTES = """\
## The block, in order

What a sublayer adds is served *before* `layer_scalar`.

```python
out = (x + attention + mlp) * scalar
```

### A detail

| size | value |
| --- | --- |
| heads | {{ sizes.num_heads of google/gemma-4-E2B-it }} |
"""


def write_notes(directory: Path) -> Path:
    """Writes notes for one family and its vision encoder, and returns their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gemma4_text.md").write_text(NOTES)
    (directory / "gemma4_text.vision.md").write_text("## Padded rows\n\nThey are masked as keys.\n")
    return directory


if __name__ == "__main__":
    print(write(Path(sys.argv[1])), write_notes(Path(sys.argv[2])))
