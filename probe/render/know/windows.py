"""What a cache keeps of a block with a window, as it was counted behind a long prompt."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.know.subject import Subject, many, say

PAST = "kv_cache_bytes_per_token_past_window"


def windows(subject: Subject) -> list[Markup]:
    """How many positions, beside the window: one fewer where the next token brings its own; or all of them."""
    if "sliding-window" not in subject.quirks or subject.fact("cache_by_block_type") is None:
        return []
    fact = subject.fact(PAST)
    if fact is None:
        return [say("A cache keeps every position of a block with a window too: none is let go.")]
    kept, window = many(fact, "positions"), subject.measured_numbers("sliding-window").get("window")
    own = dict(subject.quirks["sliding-window"].measured).get("window")
    if not isinstance(window, int) or kept != [window - 1]:
        return []
    counts = f", {own - 1} for {own}" if isinstance(own, int) else ""
    text = (
        "Of a block with a window a cache keeps one position fewer than the window{counts}; the next token is one more."
    )
    return [say(text, counts=counts)]
