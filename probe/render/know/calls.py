"""Other calls than one forward of a prompt: `generate` with its cache, embeddings in the place of ids, training."""

from __future__ import annotations

from markupsafe import Markup

from probe.render.know.order import paths
from probe.render.know.subject import Subject, many, of_run, say
from probe.render.text import figure, prose
from probe.wording import balancing_loss

DIFFERENCES = ("inputs_embeds", "training_mode")
"""Facts whose number is how far logits are apart."""

STEPS = ("no_step", "step_positions", "edits_of_the_prompt_reach", "head_in_generate")
UNRETURNED = ("no-cache", "cache-in-modules")
"""The quirks of a forward that returns no cache, which the topic on loading tells."""

KEPT_ELSEWHERE = {"cached-otherwise", "no-cache", "cache-in-modules"}


def calls(subject: Subject) -> list[Markup]:
    """What a hook meets there, and what such a call gives."""
    steps = [_told(subject, name) for name in STEPS]
    rest = [_told(subject, name) for name in ("inputs_embeds", "training_mode")]
    return [*filter(None, steps), *_cached(subject), *filter(None, rest), *_balancing(subject)]


def _told(subject: Subject, name: str) -> Markup | None:
    """A fact's statement; one that names single blocks, a size of a difference, or a window's, as the run's."""
    fact = subject.fact(name)
    if fact is None or subject.run is None:
        return None
    single = 0 < len(many(fact, "blocks")) < len(subject.run.blocks)
    differs = name in DIFFERENCES and fact.value > 0
    prompt = fact.measured.get("prompt")
    windowed = isinstance(prompt, int) and many(fact, "keys") not in ([], [prompt + 1])
    of_sizes = single or differs or windowed or name == "no_step"
    said = of_run(subject, fact.statement) if of_sizes else prose(fact.statement)
    if name == "no_step":
        told = [subject.quirks[slug].label for slug in UNRETURNED if slug in subject.quirks]
        return said + Markup("").join(
            Markup(' <a class="by" href="#know-loading">{}</a>').format(label) for label in told
        )
    window = subject.measured_numbers("sliding-window").get("window")
    if windowed and window in many(fact, "keys"):
        return say("{said} A window of {window} leaves no more of them.", said=said, window=window)
    return said


def _cached(subject: Subject) -> list[Markup]:
    """That a cache has keys as the scores take them, where a run compared the two; and whether they are turned."""
    held = subject.fact("kv_cache_bytes_per_token")
    compared = next((e.verdict for e in subject.record.experiments if e.slug == "cached-otherwise"), None)
    if held is None or not held.value or compared != "no" or KEPT_ELSEWHERE & subject.quirks.keys():
        return []
    ways = paths(subject, "attention_keys")
    turned = ", with the rotary embedding applied" if ways and all("rotary" in way.steps for way in ways) else ""
    return [say("The keys in a cache are those that the scores are made of{turned}.", turned=turned)]


def _balancing(subject: Subject) -> list[Markup]:
    """The loss that balances experts, with the config's own number."""
    fact = subject.fact("balancing_loss")
    if fact is None:
        return []
    entry = str(fact.measured.get("entry", ""))
    own, flag = (subject.config(name.rpartition(".")[2]) for name in (entry, "output_router_logits"))
    if not isinstance(own, (int, float)):
        return [prose(fact.statement)]
    padding = bool(fact.measured.get("padding_counts"))
    return [prose(balancing_loss("output_router_logits", flag, f"`{entry}` ({figure(own)})", padding))]
