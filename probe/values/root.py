"""The root of a model as a host: what is called with tokens, and what its logits are made of."""

from __future__ import annotations

from .hosts import Host
from .value import StandardValue


class Root(Host):
    """The values of a whole model, beside those of its blocks."""

    logits = StandardValue(
        "Logits",
        "output['logits']",
        "The logits the model returns, after anything it does past lm_head (a softcap, a scale)",
    )
    token_embeddings = StandardValue(
        "Residual",
        "embed_tokens.output",
        "The embedding module's output; layers[0].input is what enters the first block",
    )
    final_norm_output = StandardValue(
        "Residual", "norm.output", "The residual stream after the final norm, what lm_head reads"
    )
    lm_head_output = StandardValue(
        "Logits", "lm_head.output", "The head's logits before anything the model does past lm_head (a softcap, a scale)"
    )
    next_token_probs = StandardValue(
        "NextTokenProbs",
        "output['logits']",
        "The next-token distribution at the last position; derived, read-only",
        derive=lambda host, logits: logits[:, -1].float().softmax(-1),
        formula="tensor[:, -1].float().softmax(-1)",
    )
    input_ids = StandardValue("Tokens", "inputs[1]['input_ids']", "The token ids the model was called with")
    attention_mask = StandardValue(
        "Tokens", "inputs[1]['attention_mask']", "The attention mask the model was called with; zeros are padding"
    )
    input_size = StandardValue(
        "scalar",
        "inputs[1]['input_ids']",
        "[batch, seq] of the current call; read-only",
        derive=lambda host, ids: list(ids.shape[:2]),
        formula="list(tensor.shape[:2])",
    )
