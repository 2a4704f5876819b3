"""What the values inside a recurrent mixer are called, and what each of them is."""

from __future__ import annotations

WORDS = {
    "conv_input": "What the short convolution over the tokens takes",
    "conv_output": "What the short convolution over the tokens gives, after its activation where it has one",
    "attention_queries": "The queries, which read the state; before any norm or scale inside the recurrence",
    "attention_keys": "The keys, along which the state is written; before any norm inside the recurrence",
    "attention_values": "The values, which are written into the state",
    "mixer_x": "The input x that is written into the state",
    "mixer_b": "B, along which x is written into the state",
    "mixer_c": "C, along which the state is read",
    "mixer_dt": "The step size dt as the recurrence takes it, before its bias and softplus",
    "mixer_step_size": "The step size, after bias, softplus and limits",
    "mixer_decay": "The log of what the state is multiplied by at each token",
    "mixer_beta": "The share of the old value under a key that the new one replaces",
    "mixer_input_gate": "What weighs a token on its way into the state, before its activation",
    "mixer_forget_gate": "What keeps the state, before its activation",
    "mixer_gate": "What gates the mixer's result, before its activation",
    "recurrence_output": "What the recurrence gives for each token, before norm and gate",
    "state_in": "The state that the first token finds: zeros where nothing is cached",
    "state_out": "The state after the last token; read-only, since only a next token reads it",
    "normalizer_out": "The normalizer that belongs to the state after the last token; read-only",
    "stabilizer_out": "The largest exponent so far, by which state and normalizer are scaled, after the last token; "
    "read-only",
    "token_states": "The state after each token, read once a pass of the loop over the tokens; read-only",
    "attention_premix": "What the output projection takes: the mixer's result, normed and gated",
}

FEEDS_MORE = "; B, C and the step size are computed from it too, and follow an edit"
"""Where x has no place of its own."""


def layouts(kind: str, runs: int, axes: int) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """Parameter of a recurrence -> name, layout, and the order of its axes that gives the layout's.

    Args:
        kind: of the recurrence.
        runs: how often it is called, once a head.
        axes: of its main input.
    """
    if kind == "delta":
        return {
            "query": ("attention_queries", "MixerKeys", (0, 2, 1, 3)),
            "key": ("attention_keys", "MixerKeys", (0, 2, 1, 3)),
            "value": ("attention_values", "MixerValues", (0, 2, 1, 3)),
            "g": ("mixer_decay", "MixerGates", ()),
            "beta": ("mixer_beta", "MixerGates", ()),
        }
    if kind == "mlstm":
        return {
            "query": ("attention_queries", "MixerKeys", ()),
            "key": ("attention_keys", "MixerKeys", ()),
            "value": ("attention_values", "MixerValues", ()),
            "igate": ("mixer_input_gate", "MixerGates", (0, 2, 1)),
            "fgate": ("mixer_forget_gate", "MixerGates", (0, 2, 1)),
        }
    if kind == "wkv":
        return {"key": ("attention_keys", "Channels", ()), "value": ("attention_values", "Channels", ())}
    if kind == "lru":
        return {"hidden_states": ("mixer_x", "Channels", ())}
    if axes == 4:
        return {
            "hidden_states": ("mixer_x", "ScanHeads", ()),
            "dt": ("mixer_dt", "ScanSteps", ()),
            "B": ("mixer_b", "ScanMaps", ()),
            "C": ("mixer_c", "ScanMaps", ()),
            "z": ("mixer_gate", "ScanHeads", ()),
        }
    heads, maps = ("Channels", "ChannelMaps") if runs == 1 else ("ScanHeads", "ScanMaps")
    return {
        "hidden_states": ("mixer_x", heads, (0, 2, 1)),
        "dt": ("mixer_dt", heads, (0, 2, 1)),
        "B": ("mixer_b", maps, (0, 2, 1)),
        "C": ("mixer_c", maps, (0, 2, 1)),
        "z": ("mixer_gate", heads, (0, 2, 1)),
    }
