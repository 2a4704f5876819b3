"""Other calls than one forward of a prompt: `generate` with its cache, embeddings in the place of ids, training."""

from __future__ import annotations

import re

from markupsafe import Markup

from probe.render.know.order import paths
from probe.render.know.subject import Subject, of_run, say
from probe.render.text import figure, prose

STEPS = ("step_positions", "edits_of_the_prompt_reach", "head_in_generate")
KEPT_ELSEWHERE = {"cached-otherwise", "no-cache", "cache-in-modules"}


def calls(subject: Subject) -> list[Markup]:
    """What a hook meets there, and what such a call gives."""
    steps = [_told(subject, name) for name in STEPS]
    rest = [_told(subject, name) for name in ("inputs_embeds", "training_mode")]
    return [*filter(None, steps), *_cached(subject), *filter(None, rest), *_balancing(subject)]


def _told(subject: Subject, name: str) -> Markup | None:
    """A fact's statement; one that names single blocks, or a size of a difference, as the run's."""
    fact = subject.fact(name)
    if fact is None:
        return None
    own = "every block" in fact.statement and "; where" not in fact.statement
    return prose(fact.statement) if own or not re.search(r"\bblocks? \d|\d of \d|by up to", fact.statement) else (
        of_run(subject, fact.statement)
    )  # fmt: skip


def _cached(subject: Subject) -> list[Markup]:
    """That a cache has keys as the scores take them, where a run compared the two; turned ones where they turn."""
    held = subject.fact("kv_cache_bytes_per_token")
    compared = next((e.verdict for e in subject.record.experiments if e.slug == "cached-otherwise"), None)
    if held is None or not held.value or compared != "no" or KEPT_ELSEWHERE & subject.quirks.keys():
        return []
    ways = paths(subject, "attention_keys")
    turned = ", turned already" if ways and all("rotary" in way.steps for way in ways) else ""
    return [say("The keys in a cache are those that the scores are made of{turned}.", turned=turned)]


def _balancing(subject: Subject) -> list[Markup]:
    """The loss that balances experts, with the config's own number."""
    fact = subject.fact("balancing_loss")
    if fact is None:
        return []

    def own(found: re.Match[str]) -> str:
        value = subject.config(found[1].rpartition(".")[2])
        return f"`{found[1]}` ({figure(value)})" if isinstance(value, (int, float)) else found[0]

    return [prose(re.sub(r"`([\w.]+)` \([\d.e-]+\)", own, fact.statement))]
