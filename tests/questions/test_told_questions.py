"""Questions that a sentence of "What to know" answers, on every page of their kind.

Each has the trackers on which it is asked, the kind of page it concerns, the topic of the sentence and what it has to
say. Where one is told of a fact that no record holds yet, it waits for the first record that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from probe.render.know import what_to_know
from probe.render.places import is_served
from tests.questions.pages import PAGES, Of, Page
from tests.questions.test_questions import every, quirk


@dataclass(frozen=True)
class Told:
    """``says``: a pattern of the sentence that stands under ``topic`` of each page that ``kind`` picks."""

    asked: str
    asks: str
    kind: Of
    topic: str
    says: str | Callable[[Page], str]


def sentences(page: Page, topic: str) -> str:
    """A topic of the page as a reader sees it, or what stands above a table; empty where there is none."""
    if topic in page.tables:
        return re.sub(r"<[^>]+>", "", str(page.tables[topic].lead))
    found = [each for each in what_to_know(page.standing) if each.id == topic]
    return re.sub(r"<[^>]+>", "", " ".join(s for each in found for s in each.sentences)).replace("&#39;", "'")


def entry(page: Page, name: str) -> object:
    return next((row.value for row in page.record.config if row.name.rpartition(".")[2] == name), None)


def grouped(page: Page) -> bool:
    """Whether heads of keys are shared, on every block alike, and the scores were rebuilt."""
    rebuilt = {i.name for i in page.standing.identities(False) if i.holds} >= {"scores", "head outputs"}
    queries, keys = (page.record.sizes.get(name, 1) for name in ("num_heads", "num_kv_heads"))
    return bool(page.quirk("grouped-query") and rebuilt and not page.quirk("per-block-sizes") and queries % keys == 0)


def order_of_heads(page: Page) -> str:
    each = page.record.sizes["num_heads"] // page.record.sizes["num_kv_heads"]
    return rf"Query head h reads head h // {each} of keys and values"


def carrying(name: str) -> Of:
    """Pages behind which a run found queries or keys to be a number times what their projection gives, and not because
    turning makes both longer.
    """

    def found(page: Page) -> bool:
        if "rotary_length" in page.facts():
            return False
        numbers = next((e.measured for e in page.run.experiments if e.slug == "unscaled-scores"), {})
        return isinstance(numbers.get(f"{name}_carry"), (int, float))

    return found


def normed(page: Page) -> bool:
    """Whether all blocks have norms of one kind before their sublayers, and the stream between them is no norm's."""
    found = page.verdict("layernorm")
    return found == "no" or (found == "yes" and page.quirk("post-ln") is None)


def centring(page: Page) -> str:
    makes = {"no": "makes another model of it", "yes": "changes nothing that a norm of a block reads"}
    return f"centring the weights that write to the stream {makes[page.verdict('layernorm') or 'no']}"


def rooted(page: Page) -> bool:
    """Whether the page tells its norms, and one number was found to explain how they shrink what is made smaller."""
    return "l-norms" in page.tables and "norm_epsilon" in page.facts()


def adds_to(page: Page) -> str:
    """To the mean square or the variance, as the quirk says; a root of a sum of squares is neither of them."""
    under = {"no": "mean square", "yes": "variance"}.get(page.verdict("layernorm") or "", "(mean square|variance)")
    return rf"add [\d.e-]+(, \w+,)? to the ({under}|sum of squares) under the root"


def windowed(page: Page) -> bool:
    """Whether blocks have a window, and what their cache holds was counted block by block."""
    return page.quirk("sliding-window") is not None and "cache_by_block_type" in page.facts()


def kept(page: Page) -> str:
    """One fewer than the window; all positions where no block was seen to let any go."""
    found = page.quirk("sliding-window")
    window = found.measured.get("window") if found else None
    if "kv_cache_bytes_per_token_past_window" not in page.facts():
        return "A cache keeps every position of a block with a window too"
    return rf"one position fewer than the window, {window - 1} for {window};" if window else "one position fewer"


def further(page: Page) -> bool:
    counts = [entry(page, name) for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")]
    return any(isinstance(count, int) and count > 0 for count in counts)


def deep(page: Page) -> bool:
    """Whether blocks of an encoder reach the text stream behind later blocks."""
    images = page.run.images
    return images is not None and any(max(row.enters or [-1]) >= 0 for row in images.stations)


def cast(page: Page) -> bool:
    """Whether the page's run was in float32 and its model called with bfloat16 weights, as far as its head."""
    found = next((e for e in page.run.experiments if e.slug == "fp32-residual"), None)
    return page.run.checkpoint.dtype == "float32" and found is not None and found.verdict in ("yes", "no")


def batched(page: Page) -> bool:
    """Whether two prompts in one batch, one of them padded, could be compared under two attentions."""
    return "eager_sdpa_padded" in page.facts()


def eager_pattern(page: Page) -> bool:
    return batched(page) and page.value("attention_probabilities") is not None


def stacked(page: Page) -> bool:
    """Whether a parameter holds a matrix for each expert."""
    return any("expert_outputs" in weight.yields and len(weight.shape) == 3 for weight in page.record.weights)


def rescaled(page: Page) -> bool:
    """Whether frequencies were found to be changed, on a class with a module that makes them."""
    names = {row.module for row in page.run.returned}
    return page.run_quirk("rescaled-rotary") is not None and any("Rotary" in name for name in names)


def two_sets(page: Page) -> bool:
    """Whether the run's config has two sets of frequencies, and its module was seen to take both."""
    short, long = (
        next((row.value for row in page.run.config if row.name.endswith(name)), None)
        for name in ("short_factor", "long_factor")
    )
    return short != long and "rotary_switch" in page.facts()


def one_latent(page: Page) -> object:
    """Whether the cache was found to store one vector for all heads in the keys' place, of one width."""
    stored = next((e.measured.get("stored") for e in page.run.experiments if e.slug == "cached-otherwise"), None)
    return page.quirk("cached-otherwise") and isinstance(stored, list) and len(stored) == 2 and stored[0] == 1


def ramped(page: Page) -> bool:
    """Whether frequencies were found to be changed, by a config whose entries tell how far a pair has turned."""
    return page.run_quirk("rescaled-rotary") is not None and any(
        entry(page, name) is not None for name in ("low_freq_factor", "beta_slow")
    )


def balanced(page: Page) -> bool:
    return any(row.field == "aux_loss" for row in page.run.outputs)


def several_chosen(page: Page) -> bool:
    """Whether weights were read of several experts a token."""
    row = next((each for each in page.run.values if each.name == "expert_weights" and is_served(each)), None)
    return row is not None and bool(row.shape) and (row.shape or [1])[-1] > 1


def with_neurons(page: Page) -> bool:
    """Whether the neurons of an MLP are what a module is called with, by a sum of products as usual, once a forward."""
    row = page.value("mlp_neurons")
    other = page.quirk("quantized-linears") or page.quirk("looped-blocks") or "unkept_neurons" in page.facts()
    return bool(page.record.weights) and not other and row is not None and row.hf is not None and row.hf.side == "in"


def rooted_scores(page: Page) -> bool:
    found = [fact for fact in page.run.facts if fact.name.startswith("score_scale")]
    return bool(found) and all("root of" in fact.statement for fact in found)


def kept_as_they_are(page: Page) -> bool:
    """Whether a cache was seen that holds what the scores are made of."""
    other = {"cached-otherwise", "no-cache", "cache-in-modules"}
    held = next((fact.value for fact in page.run.facts if fact.name == "kv_cache_bytes_per_token"), 0)
    return bool(held) and page.verdict("cached-otherwise") == "no" and not any(map(page.quirk, other))


def activated(page: Page) -> bool:
    """Whether the run told every function of the MLPs, and none is told by a quirk."""
    found = next((e.measured.get("function") for e in page.run.experiments if e.slug == "squared-relu"), None)
    return bool(found) and "unknown" not in str(found) and page.quirk("squared-relu") is None


def gated_mixer(page: Page) -> bool:
    """Whether a mixer's projection was found to give its gate beside other parts."""
    splits = [fact.measured.get("parts") for fact in page.run.facts if fact.name.startswith("mixer_split")]
    return any(isinstance(parts, list) and "mixer_gate" in parts for parts in splits)


TOLD = (
    Told("TransformerLens, captum", "which key head a query head reads", grouped, "know-consequences", order_of_heads),
    Told("OPT ports, llama.cpp (attention factor)", "what queries carry of the scores' factor", carrying("queries"),
         "know-machinery", r"attention_queries (are|and attention_keys are each) [\d.]+ times as long as what their"),
    Told("the same", "what keys carry of the scores' factor", carrying("keys"),
         "know-machinery", r"attention_keys are (each )?[\d.]+ times as long as what their"),
    Told("TransformerLens (center_writing_weights)", "whether writing weights may be centred", normed,
         "know-consequences", centring),
    Told("TransformerLens (center_unembed)", "whether the unembedding may be centred", quirk("softcapped-logits"),
         "know-lens", r"so the unembedding cannot be centred over the vocabulary"),
    Told("transformers, nnsight (caches)", "how many positions a window's cache keeps", windowed, "know-loading", kept),
    Told("transformers, vLLM (MTP)", "whether layers for further tokens are built", further, "know-blocks",
         lambda page: rf"and the class builds none: the model has the {len(page.record.blocks)} blocks"),
    Told("Qwen3-VL", "after which text blocks features of other encoder blocks are added", deep, "know-entrance",
         r"made from the encoder's blocks [\d–, ]+, is added to the stream at these tokens after blocks \d–\d of "),
    Told("transformers, nnsight (left padding)", "whether padding on the left moves logits", batched, "know-loading",
         r"padding on the left (moves logits at real tokens by (at most|up to) [\de.-]+"
         r"|leaves logits .* as).* padding on the right( does)?"
         r"(: where tokens|; with `?position_ids|; the model takes no|; it does not run)"),
    Told("transformers", "which mask attentions are handed", eager_pattern, "know-loading",
         r"In a padded batch.* attentions are handed (a|no) mask"),
    Told("llama.cpp, vLLM (YaRN, longrope)", "whether turning makes queries and keys longer", rescaled, "know-entrance",
         r"[Tt]urning (leaves queries and keys as long as they are|with what \S+.* makes queries and keys [\d.]+ t)"),
    Told("Phi-3 (longrope)", "when the other set of frequencies is taken", two_sets, "know-entrance",
         r"past original_max_position_embeddings positions \S+ turns all of them otherwise"),
    Told("Qwen2-VL, mlx-vlm (M-RoPE)", "which part of a head each stream of positions turns",
         quirk("multimodal-rotary"), "know-entrance",
         r"turn dimensions of their own: \d+, \d+ and \d+ pairs a head"),
    Told("transformers, vLLM (MLA)", "what is cached of a latent attention", one_latent, "know-loading",
         r"heads x width: 1 x \d+ for|in the keys' place one vector of \d+ numbers for all heads"),
    Told("transformers, vLLM (MTP)", "which weights loading passes over",
         lambda p: "passed_over_at_loading" in p.facts(), "know-blocks",
         r"Loading passes over weights whose names match \S+"),
    Told("llama.cpp, vLLM (Mamba, Qwen3-Next)", "in which order a mixer's projection is split",
         gated_mixer, "know-machinery",
         r"[Ww]hat \S+ gives is, side by side, what becomes .*mixer_gate \(\d+\)"),
    Told("gpt-oss ports, vLLM, unsloth", "how stacked experts are stored", stacked, "know-machinery",
         r"An expert's part of \S+.* is (in|out)put × (in|out)put"),
    Told("TransformerLens, llama.cpp", "what norms add under the root", rooted, "l-norms",
         adds_to),
    Told("transformers, TransformerLens", "the dtype of logits, and what stays float32", cast, "know-loading",
         r"In a bfloat16 load logits are (bfloat16|float32)[,;]"),
    Told("nnsight (generate)", "how many positions a step has", lambda p: {"step_positions", "no_step"} & {*p.facts()},
         "know-calls", r"[Aa]t a step with a cache every block (gives|returns) [\d or]+ position|"
         r"[Nn]o step with a cache was measured: [a-z]"),
    Told("nnsight (cache)", "whether a cache holds turned keys", kept_as_they_are, "know-calls",
         r"The keys in a cache are those that the scores are made of"),
    Told("TransformerLens (attn_scale)", "what scores are divided by", rooted_scores, "know-consequences",
         r"Scores are q·k times 1/√\d+, one over the root"),
    Told("llama.cpp, vLLM (llama3, YaRN)", "between which wavelengths frequencies are scaled", ramped, "know-entrance",
         r"wavelength below original_max_position_embeddings / \w+ \([\d,.]+\) positions keeps its frequency; "
         r"one with a wavelength above original_max_position_embeddings / \w+ \([\d,.]+\) has it divided by factor \("),
    Told("transformers (aux_loss)", "whether the loss balances experts, and whether padding counts", balanced,
         "know-calls", r"the loss has \S+ (\([\d.e-]+\) )?times aux_loss in it.*Padded positions (do not )?count|"
         r"fills aux_loss, but the loss that labels give is the same"),
    Told("Qwen2-VL, llama.cpp (mtmd)", "the positions of text after an image", lambda p: p.run.images, "know-entrance",
         r"[Pp]ositions count every token of an image|takes the positions \d+ to \d+; the text after it goes on"),
    Told("TransformerLens (W_in, Conv1D), llama.cpp (gate_up)", "which part of a matrix is a neuron's", with_neurons,
         "l-projections", r"[Nn]euron n( of N)? in \S+ \w+ .*\.weight\[.*, and .*\.weight\["),
    Told("gpt-oss ports, vLLM (topk)", "in which order a token's experts stand", several_chosen, "know-machinery",
         r"The experts of a token (stand|are not ordered)[^.]* by weight"),
    Told("TransformerLens (gelu_new), llama.cpp", "which GELU it is", activated, "know-machinery",
         r"The activations? of the MLPs (is|are) (SiLU|ReLU|the exact GELU|the GELU of the tanh approximation)"),
    Told("TransformerLens (hook_result, b_O, b_U)", "what single heads and neurons leave out",
         lambda p: "last_biases" in p.facts(), "know-consequences", r"adds? a bias|for zeros, so without a bias"),
    Told("captum, transformers", "whether embeddings may stand for ids", every, "know-calls",
         r"inputs_embeds.*(the same logits|other logits, by up to|cannot be called|\()"),
    Told("transformers (logits_to_keep)", "at which positions generate has logits", every, "know-calls",
         r"generate has the head called at (the last position alone|every position)"),
    Told("transformers (dropout, router jitter)", "what training mode changes", every, "know-calls",
         r"model.train\(\) (changes no logit|moves logits)"),
    Told("nnsight, captum (attribution patching)", "whether gradients arrive", every, "know-consequences",
         r"[Gg]radient of the logits arrives"),
)  # fmt: skip


@pytest.mark.parametrize("told", TOLD, ids=[told.asks for told in TOLD])
def test_a_sentence_answers_on_every_page_of_its_kind(told: Told) -> None:
    concerned = [page for page in PAGES if told.kind(page)]
    assert concerned
    wanted = told.says if callable(told.says) else lambda _: str(told.says)
    silent = [
        f"{page.family}/{page.record.checkpoint.id}"
        for page in concerned
        if not re.search(wanted(page), sentences(page, told.topic))
    ]
    assert not silent


def test_a_number_of_images_on_the_twin_is_not_the_checkpoints() -> None:
    """A twin has as many blocks as mergers; its checkpoints have more, so "every block" would be wrong of them."""
    pages = [*filter(deep, PAGES)]
    assert {page.run is page.record for page in pages} == {True, False}
    for page in pages:
        said = sentences(page, "know-entrance")
        assert "after every block" not in said
        assert ("On the twin what" in said) == (page.run is not page.record)


def test_blocks_of_the_twin_are_said_to_be_the_twins() -> None:
    """What a fact says of some blocks is of the run's, which are not the checkpoint's."""
    checked = 0
    for page in PAGES:
        facts = [fact for fact in page.run.facts if re.search(r"\bblocks? \d", fact.statement)]
        if page.run is page.record or not facts:
            continue
        said = [s for each in what_to_know(page.standing) for s in each.sentences]
        told = [re.sub(r"<[^>]+>", "", str(s)) for s in said]
        for fact in facts:
            part = fact.statement.replace("`", "")[12:80]
            found = [text[: text.index(part)] for text in told if part in text]
            checked += len(found)
            assert all("twin" in before[-60:] for before in found), (page.family, fact.name)
    assert checked
