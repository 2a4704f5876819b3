"""Value rows of the fixture: what each host has, written once for all families."""

from __future__ import annotations

from collections.abc import Sequence

ATTENTION = """\
attention_queries|Queries|batch num_heads seq qk_head_dim|The queries, ready for the scores|op attention_interface_1 1
attention_keys|Keys|batch num_kv_heads seq qk_head_dim|The keys, ready for the scores|op attention_interface_1 2
attention_values|Values|batch num_kv_heads seq head_dim|The values, before they are mixed|op attention_interface_1 3
attention_scores|Pattern|batch num_heads query key|The masked scores, before the softmax|op nn_functional_softmax_0 0
attention_probabilities|Pattern|batch num_heads query key|A row over keys for each query|op nn_functional_dropout_0 0
attention_head_outputs|HeadOutputs|batch seq num_heads head_dim|What each head mixed|op attention_interface_1 0
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
HELD = {"attention_premix": (36, "tensor.unflatten(2, (num_heads, head_dim))")}
WORDS = {"in": "what {} is called with", "out": "what {} returns", "op": "inside the forward, at {}"}


class Builder:
    """Builds the value rows of one checkpoint."""

    def __init__(self, kind: str, sizes: dict[str, int]) -> None:
        self.kind, self.sizes, self.rows = kind, sizes, []  # type: str, dict[str, int], list[dict[str, Any]]

    def add(self, host: str, module: str, spec: str, blocks: Sequence[int] | None, absent: str | None = None) -> None:
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
                    "location": None
                    if gone
                    else {"in": f"{path}.input", "out": f"{path}.output"}.get(
                        side, f"source.{path}.output" if element == "0" else f"source.{path}.inputs[0][{element}]"
                    ),
                    "read_at": "nowhere: this checkpoint does not have it" if gone else WORDS[side].format(path),
                    "hf": None
                    if gone
                    else {"path": full, "side": side, "element": path if side == "op" else 0}
                    | (
                        {"held": {"shape": [1, 9, HELD[name][0]], "view": HELD[name][1]}}
                        if ran and name in HELD
                        else {}
                    ),
                    "blocks": [] if gone else (None if blocks is None else list(blocks)),
                    "needs": "eager" if name in EAGER and not gone else None,
                    "reason": absent or (EAGER_REASON if name in EAGER else None),
                    "shape": [{"batch": 1, "seq": 9, "query": 9, "key": 9}.get(d, self.sizes.get(d, 4)) for d in here]
                    if ran and not gone
                    else None,
                    "reads": False if gone else (True if ran else None),
                    "edits": False if gone or name in ("next_token_probs", "input_ids") else (True if ran else None),
                    "edit": {"logits": 0.4, "exact": 2e-6 if name.endswith("_output") else None}
                    if ran and not gone and name not in ("next_token_probs", "input_ids")
                    else None,
                    "why": "built on the meta device; nothing ran" if not ran and not gone else None,
                }
            )


def block_rows(b: Builder, block: str, n: int, mid: str, moe: Sequence[int], dense: Sequence[int]) -> None:
    """The rows that every family here has."""
    whole = range(n)
    b.add(
        "model",
        block.replace("TextDecoderLayer", "ForConditionalGeneration").replace("DecoderLayer", "ForCausalLM"),
        ROOT,
        None,
    )
    b.add(
        "model.layers[i]",
        block,
        f"""\
layer_input|Residual|batch seq hidden_size|The stream entering the block|in . 0
attention_norm_output|Residual|batch seq hidden_size|The normed stream for the attention|out input_layernorm 0
layer_mid|Residual|batch seq hidden_size|The stream after the attention's add|in {mid} 0
mlp_norm_output|Residual|batch seq hidden_size|The normed stream for the MLP|out {mid} 0
mlp_input|Residual|batch seq hidden_size|What the MLP is called with|in mlp 0
layer_output|Residual|batch seq hidden_size|The stream leaving the block|out . 0""",
        whole,
    )
    attention = block.replace("DecoderLayer", "Attention")
    b.add("model.layers[i].self_attn", attention, ATTENTION, whole)
    b.add(
        "model.layers[i].self_attn",
        attention,
        "attention_output|Residual|batch seq hidden_size|What the attention adds|out . 0",
        whole,
    )
    mlp = block.replace("DecoderLayer", "MLP")
    b.add("model.layers[i].mlp", mlp, MLP, dense)
    b.add("model.layers[i].mlp", mlp, "mlp_output|Residual|batch seq hidden_size|What the MLP adds|out . 0", whole)
    b.add(
        "model.layers[i].mlp",
        mlp,
        MIXTURE,
        moe,
        None if moe else "No block of this checkpoint has a mixture of experts.",
    )
