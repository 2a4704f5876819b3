"""Questions that users asked in public: each is answered on every page of its kind, by a section or a command.

A question names its thread, the kind of page it concerns, told from the record, and what answers it there. What is
found of modules is asked of the pages whose record holds it; one test sees to it that either all of them do or none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from probe.checkpoints import tokens
from probe.kernels import results
from probe.render.know import kernels, what_to_know
from probe.render.know.order import ATTENTION, SIDES, paths
from probe.render.know.subject import Subject
from probe.render.lookups.stream import place
from probe.render.other_names import Told, told
from probe.render.places import is_served
from probe.render.standing import Standing
from probe.render.text import figure
from probe.render.values import tables
from probe.schema import Value
from tests.questions.pages import PAGES, Of, Page
from tests.render.knowing import COMMITTED, plain


@dataclass(frozen=True)
class Question:
    """``kind``: which pages it concerns; ``where``: the section or command; ``answered``: whether a page answers."""

    thread: str
    asks: str
    kind: Of
    where: str
    answered: Of


def every(_: Page) -> bool:
    return True


def quirk(slug: str) -> Of:
    return lambda page: page.quirk(slug)


def table(name: str) -> Of:
    return lambda page: name in page.tables


def held(page: Page) -> bool:
    """Whether the page's record holds what modules return and hold."""
    return bool(page.record.returned)


def mixture(page: Page) -> bool:
    return page.value("router_logits") is not None


def several(page: Page) -> bool:
    return len(set(page.record.layer_types)) > 1


def _pattern_told(page: Page) -> bool:
    row = page.value("attention_probabilities")
    return row is not None and "eager" in (row.reason or "") and row.needs == "eager"


def _kernels_told(page: Page) -> bool:
    return bool(page.facts() & {"takes_sdpa", "not_measured_kernels"}) or {"eager_sdpa"} <= page.facts()


def _middle_refused(page: Page) -> bool:
    parallel = page.quirk("parallel-blocks")
    rows = [row for row in page.record.values if row.name == "layer_mid" and row.host == "model.layers[i]"]
    own = {block for row in rows if is_served(row) for block in row.blocks or ()}
    return parallel is not None and not own & set(parallel.blocks or ()) and bool(page.sums("block sum"))


def _terms_apart(page: Page) -> bool:
    """Whether each contribution has its module and what is added in its place, with the sum evaluated."""
    return all(row[1] and row[2] for row in page.tables["l-terms"].rows) and bool(page.sums("block sum"))


def _states_told(page: Page) -> bool:
    return "l-hidden-states" in page.tables or "hidden_states" in page.facts()


def _final_norm_told(page: Page) -> bool:
    none = any(fact.name == "hidden_states" and fact.value == 0 for fact in page.run.facts)
    return none or "last_hidden_state_is_normed" in page.facts()


def _scale_told(page: Page) -> bool:
    found = page.quirk("scaled-logits") or page.quirk("softcapped-logits")
    lead = page.tables["l-readout"].lead if "l-readout" in page.tables else ""
    separate = page.value("lm_head_output") and page.value("logits")
    return bool(found and separate) and (found.label in lead if lead else True)  # type: ignore[union-attr]


def _heads_apart(page: Page) -> bool:
    """Whether fewer heads of keys than of queries are told, each with its part; or why they are not."""
    found = [weight for weight in page.record.weights if weight.layout or weight.counts]
    queries = max((weight.counts.get("attention_queries", 0) for weight in found), default=0)
    keys = [weight.counts["attention_keys"] for weight in found if "attention_keys" in weight.counts]
    unknown = [weight for weight in page.record.weights if not weight.layout]
    fewer = all(count < queries for count in keys) if queries else True  # sizes may not tell the queries'
    return fewer and bool(keys and queries or all(weight.statement for weight in unknown))


def _blocks_told(page: Page) -> bool:
    """Whether each block's shape names its layer type, and what blocks differ in is told with the blocks: rotary, norms
    of queries, mixtures. Mixtures are compared with the wiring.
    """
    record = page.record
    if [record.shapes[shape].layer_type for shape in record.blocks] != list(record.layer_types):
        return False
    mixed = [i for i, s in enumerate(record.blocks) if any(sub.kind == "moe" for sub in record.shapes[s].sublayers)]
    found = page.quirk("mixture-of-experts")
    told = [page.quirk(slug) for slug in ("nope-blocks", "qk-norm", "chunked-attention", "sliding-window")]
    return (found.blocks if found else []) == mixed and all(each.blocks for each in told if each)


def _order_of_heads_told(page: Page) -> bool:
    """Whether each weight that yields several of queries, keys and values has the part of each, or the reason."""
    fused = [weight for weight in page.record.weights if len(weight.yields) > 1]
    return all(set(weight.yields) <= weight.parts.keys() or weight.statement for weight in fused)


def _middle_among_norms(page: Page) -> bool:
    """Whether the stream's middle is what the norm before the MLP takes, which is not the norm after the attention."""
    record, found = page.record, False
    for shape in record.shapes:
        kinds = {sub.kind: sub for sub in shape.sublayers}
        mlp, attention = kinds.get("mlp") or kinds.get("moe"), kinds.get("attention")
        if mlp is None or attention is None or not (mlp.pre_norm and attention.post_norm):
            continue
        middle, normed, added = (page.value(name) for name in ("layer_mid", "mlp_norm_output", "attention_output"))
        if not (middle and normed and added) or mlp.pre_norm == attention.post_norm:
            return False
        at = [row.hf.path.rpartition(".")[2] if row.hf else "" for row in (normed, added)]
        before = middle.hf is not None and middle.hf.side == "in" and middle.hf.path.endswith(f".{mlp.pre_norm}")
        if not (before and at == [mlp.pre_norm, attention.post_norm]):
            return False
        found = True
    return found


def _four_norms(page: Page) -> bool:
    return any(
        sub.kind in ("mlp", "moe") and sub.pre_norm and sub.post_norm
        for shape in page.record.shapes
        if {s.kind for s in shape.sublayers} & {"attention"}
        for sub in shape.sublayers
    )


def _same_name(page: Page) -> list[tuple[Value, Told]]:
    """The names of the page that stand for another of our values."""
    rows = filter(is_served, page.record.values)
    return [(row, one) for row in rows for one in told(page.subject, row) if one.differs and one.name.instead]


def _misleading_told(page: Page) -> bool:
    """Whether each stands in the table with the places of both tensors."""
    rows = {str(row[0].striptags()): row for row in page.tables["l-misleading"].rows}
    found = _same_name(page)
    return all(
        (row := rows[one.name.name]) and str(place(value)) in row[2] and row[3].count("<code>") >= 3
        for value, one in found
    )


def _cards_named(page: Page) -> bool:
    """Whether every value's card has all the names that hold for it."""
    cards = {
        (host.host, host.module, row.name): dict(row.card) for host in tables(page.standing, False) for row in host.rows
    }
    return all(
        one.name.name in cards[value.host, value.module, value.name].get(one.name.tool, "")
        for value in page.record.values
        for one in told(page.subject, value)
    )


def _order_told(page: Page) -> bool:
    """Whether rows of queries and keys say whether they are turned, and behind which steps, for each of their blocks;
    where a part of a head turns, with how much of it.
    """
    parts = [page.run_quirk(slug) for slug in ("partial-rotary", "proportional-rotary")]
    if not all({"turning", "width"} <= part.measured.keys() for part in parts if part):
        return False
    for name in ("attention_queries", "attention_keys"):
        row = page.subject.value(ATTENTION, name)
        ways = paths(page.subject, name)
        if row is None or sorted(block for way in ways for block in way.blocks) != sorted(row.blocks or []):
            return False
        if any(way.open and page.verdict("norm-after-rotary") in ("yes", "no") for way in ways):
            return False
    return True


def _turned(page: Page) -> object:
    """Queries of an attention whose rotation and norms could be examined."""
    known = page.verdict("interleaved-rotary"), page.verdict("qk-norm")
    return page.subject.value(ATTENTION, "attention_queries") and not {"inconclusive", None} & {*known}


def _logits_told(page: Page) -> bool:
    flags = {row.flag for row in page.run.outputs}
    return "output_router_logits" in flags and page.value("router_logits") is not None and "l-scoring" in page.tables


def _router_told(page: Page) -> bool:
    sizes = {name for shape in page.record.shapes for name in shape.sizes}
    return "l-router" in page.tables and ({"num_experts", "top_k"} <= sizes or not held(page))


def _sinks_told(page: Page) -> bool:
    return any("sink" in text for text in page.sums("pattern"))


def sees(page: Page) -> bool:
    """Whether the page's checkpoint, or the twin behind it, is built with an encoder whose images can be read here."""
    return page.record.vision is not None or page.run.checkpoint.model_type in tokens.SEEING


def _image_told(page: Page) -> bool:
    """Patches, each block, what the merger takes and gives: each with its shape, read and edited."""
    wanted = ("image_token_mask", "patch_embeddings", "tower_output", "image_features")
    if page.record.vision is not None and not (page.record.vision.rows and all(page.value(name) for name in wanted)):
        return False
    if page.run.images is None:
        return False
    found = page.run.images.stations
    sides = [(row.role, row.side) for row in found if row.edits or row.reaches]
    mergers = {row.path for row in found if row.enters}
    both = {row.path for row in found if row.side == "in" and row.edits} & mergers
    parts = {("patch embedding", "in"), ("patch embedding", "out"), ("block", "in"), ("block", "out")} <= {*sides}
    return bool(parts and mergers == both and page.run.images.size in page.tables["l-images"].lead)


def _attention_on_images_told(page: Page) -> bool:
    """The pattern's shape over text and image positions, which keys are image tokens, and code that sums."""
    if page.run.images is None:
        return False
    images, table = page.run.images, page.tables["l-image-attention"]
    length = images.inputs["input_ids"][-1]
    return bool(
        images.mask_holds
        and all(pattern.shape[-2:] == [length, length] for pattern in images.patterns)
        and "image_token_id" in table.lead
        and "on_image].sum(-1)" in (table.code or "")
    )


def _states_at_every_token(page: Page) -> bool:
    """The state at each token, or why there is none; the code that it is read in, and the way by a cache's steps."""
    rows = [row for row in page.record.values if row.name == "token_states"]
    if not any(is_served(row) or row.reason for row in rows):
        return False
    if not any("states_by_steps" in p.facts() for p in PAGES):
        return True  # no record has it yet
    inside = [row for row in page.record.values if ".implementation_" in (row.location or "") and is_served(row)]
    codes = [fact for fact in page.run.facts if fact.name.startswith("code_of_")]
    return (
        "states_by_steps" in page.facts()
        and all("needs the PyTorch code of" in (row.reason or "") for row in inside)
        and bool(codes) >= bool(inside)
    )


def _fused(page: Page) -> object:
    """Whether another package's code may run the recurrence, or another function of the mixers."""
    recurrence = any(fact.name.startswith("code_of_") for fact in page.run.facts)
    return recurrence or kernels.comparisons(page.subject, results.committed())


def _fused_numbers_told(page: Page) -> bool:
    """How far the kernel's numbers are apart, or why that was not measured; of each further function too."""
    text = plain(page.standing, "know-loading")
    found = kernels.comparisons(page.subject, results.committed())
    named = {fact.name.removeprefix("code_of_") for fact in page.run.facts if fact.name.startswith("code_of_")}
    told = [f"{each.reason}.".replace("`", "") for each in found if each.reason]
    told += [figure(difference.apart) for each in found for difference in each.differences if difference.apart]
    told += [name for each in found for name in (each.stand_in, each.reference) if name]
    on = ["The kernels that were measured ran"] if any(each.reason is None for each in found) else []
    unrun = any(each.reference and each.ran is None for each in found)
    on += ["Whether a kernel that was not run keeps to its PyTorch version"] if unrun else []
    return named <= {each.function for each in found} and all(part in text for part in [*told, *on])


def _paths_given(page: Page) -> bool:
    return all(row.hf is not None or row.reason for row in page.record.values if is_served(row))


def _once_recorded(name: str, answered: Of) -> Of:
    """True of every page as long as no record holds the fact that the answer is made from."""
    return lambda page: answered(page) or not any(name in p.facts() for p in PAGES)


def _normed_inside(page: Page) -> object:
    """Whether queries, keys or a latent vector are normed, by modules of the attention that are norms."""
    rows = [row.path for row in page.run.returned if "norm" in row.module.lower() and not row.vision]
    return [path for path in rows if "self_attn." in path and path.endswith(("q_norm", "kv_a_layernorm"))]


def _inner_norms_told(page: Page) -> bool:
    table = page.tables.get("l-inner-norms")
    return table is not None and {"normed together", "gain", "added under the root"} <= {*table.head}


def _latent_turning(page: Page) -> object:
    """A latent attention in which queries turn with the position."""
    return page.quirk("latent-attention") and page.verdict("interleaved-rotary") in ("yes", "no")


def _last_part_told(page: Page) -> bool:
    return "rotary_part" in page.facts()


def _pairs_told(page: Page) -> bool:
    """Whether neighbours turn together, or the page says that they do in what the projection gives."""
    return page.verdict("interleaved-rotary") == "yes" or "rotary_reorders" in page.facts()


def _interleaved_by_config(page: Page) -> object:
    """A config that says that pairs of the projections' outputs are neighbours."""
    return any(row.name.rpartition(".")[2] == "rope_interleave" and row.value is True for row in page.record.config)


def _told_of_machinery(page: Page, wanted: str) -> bool:
    """Whether a sentence on the family's machinery matches."""
    said = [s for topic in what_to_know(page.standing) if topic.id == "know-machinery" for s in topic.sentences]
    return re.search(wanted, re.sub(r"<[^>]+>", "", " ".join(said))) is not None


def _biases_of_experts_told(page: Page) -> bool:
    wanted = r"experts of \S+ have no biases|[Ee]ach expert has biases of its own|is added once to what the mixture"
    return _told_of_machinery(page, wanted)


def _experts_of_matrices(page: Page) -> object:
    """A mixture whose experts have matrices of their own that were seen."""
    return any("expert_outputs" in weight.yields for weight in page.record.weights)


def _convolution_told(page: Page) -> bool:
    return _told_of_machinery(
        page, r"[Tt]he short convolution \S+ makes a value from its own position and the .* zeros"
    )


def _convolves(page: Page) -> object:
    """A mixer in which what a convolution takes and gives was read."""
    return any(identity.name.startswith("convolution of the mixer") for identity in page.run.identities)


QUESTIONS = (
    Question(
        "transformers#31990", "the pattern during generate",
        lambda page: (row := page.value("attention_probabilities")) and row.needs, "its row; read --attn sdpa",
        _pattern_told,
    ),
    Question("transformers#32086", "eager against sdpa, with padding", every, "facts", _kernels_told),
    Question("LLaVA#1182", "attention on image tokens", sees, "l-image-attention", _attention_on_images_told),
    Question("jax#30964", "rows that do not sum to one", quirk("attention-sink"), "identities", _sinks_told),
    Question(
        "TransformerLens#923", "where hook_resid_mid is", quirk("parallel-blocks"), "read layer_mid", _middle_refused
    ),
    Question("nnterp#51", "outputs that hold the residual", quirk("residual-inside-module"), "l-terms", _terms_apart),
    Question("TransformerLens#1648", "output against contribution", table("l-terms"), "l-terms", _terms_apart),
    Question("TransformerLens#650", "resid_mid among four norms", _four_norms, "rows", _middle_among_norms),
    Question("TransformerLens#1317", "one name, two tensors", _same_name, "l-misleading", _misleading_told),
    Question("TransformerLens#644", "names on each part", lambda p: p.record.checkpoint.kind == "tiny", "cards",
             _cards_named),
    Question("OLMo#806, gemma_pytorch#74", "norm, then rotary?", _turned, "rows", _order_told),
    Question(
        "vLLM, llama.cpp (MLA)", "which part of a latent head turns", _latent_turning, "know-entrance",
        _once_recorded("rotary_part", _last_part_told),
    ),
    Question(
        "vLLM, llama.cpp (rope_interleave)", "which rows of a projection turn together", _interleaved_by_config,
        "know-entrance", _once_recorded("rotary_reorders", _pairs_told),
    ),
    Question(
        "vLLM, TransformerLens (q_norm, kv_a_layernorm)", "epsilon, gain and width of norms in the attention",
        _normed_inside, "l-inner-norms", _once_recorded("inner_norms", _inner_norms_told),
    ),
    Question("captum PR#1736", "the order of a fused projection", quirk("fused-qkv"), "l-projections",
             _order_of_heads_told),
    Question(
        "TransformerLens#657", "the norm's output with its gain", lambda page: page.value("attention_norm_output"),
        "l-norms", table("l-norms"),
    ),
    Question(
        "TransformerLens (fold_ln)", "what reads a norm",
        lambda page: "l-norms" in page.tables and any(row.reads for row in page.record.returned), "l-norms",
        lambda page: "read by" in page.tables["l-norms"].head,
    ),
    Question("sparsify#16", "which layer hidden_states[24] is", every, "l-hidden-states, facts", _states_told),
    Question("transformers#13461", "is the last one normed", every, "facts", _final_norm_told),
    Question("TransformerLens#828", "the lens on the last layer", every, "l-readout", table("l-readout")),
    Question("TransformerLens PR#1727", "where logits are scaled", quirk("scaled-logits"), "l-readout", _scale_told),
    Question("baukit#7", "the paths of modules", every, "rows, l-paths", _paths_given),
    Question("EasyEdit#670", "tuple or tensor", held, "l-returns", table("l-returns")),
    Question("nnterp PR#58", "under which versions", every, "provenance; check", lambda p: p.standing.versions()),
    Question(
        "TransformerLens#1553", "fewer heads of keys", lambda page: page.record.weights and page.quirk("grouped-query"),
        "l-projections", _heads_apart,
    ),
    Question("llama-models#312", "which blocks are of which kind", several, "strip", _blocks_told),
    Question("pmetal#31", "borrowed keys and values", quirk("borrowed-kv"), "l-borrowing", table("l-borrowing")),
    Question(
        "transformers#48911", "router logits", lambda page: mixture(page) and page.run.outputs, "l-outputs, l-scoring",
        _logits_told,
    ),
    Question("gpt-oss ports, llama.cpp (ffn_gate_exps.bias)", "whether experts have biases", _experts_of_matrices,
             "know-machinery", _once_recorded("expert_biases", _biases_of_experts_told)),
    Question("GPT-OSS-MoE-ExpertFingerprinting#1", "the router's tuple", mixture, "l-router", _router_told),
    Question("Qwen3-VL#2105", "features of patches", sees, "rows, l-images", _image_told),
    Question(
        "TransformerLens#867", "which tool reaches what", sees, "l-tools",
        lambda p: "l-tools" in p.tables,
    ),
    Question(
        "mamba#518", "states at every position",
        lambda page: any(row.name == "state_out" and is_served(row) for row in page.record.values),
        "its row, know-loading",
        _states_at_every_token,
    ),
    Question(
        "llama.cpp, vLLM (conv_L_cache, d_conv)", "how far back a short convolution reads", _convolves,
        "know-machinery", _once_recorded("convolution", _convolution_told),
    ),
    Question("mamba#208", "how the fast kernel's numbers compare", _fused, "know-loading", _fused_numbers_told),
)  # fmt: skip

NO_COLUMN = "a row's missing share is told, but its pattern is no softmax with one column more, so no sum was evaluated"
UNANSWERED: dict[tuple[str, str], str] = {
    ("jax#30964", "inkling2_text"): NO_COLUMN,
    ("jax#30964", "inkling2_loop_text"): NO_COLUMN,
    ("TransformerLens#650", "gemma3n_text"): "a branch is added beside the attention, and both are scaled before the "
    "MLP's norm: no stream lies between attention and MLP, and the block's sum tells it",
}
"""Thread and family of what a page cannot answer, with the reason; one that is answered after all fails."""


@pytest.mark.parametrize("question", QUESTIONS, ids=[q.thread for q in QUESTIONS])
def test_a_question_is_answered_on_every_page_of_its_kind(question: Question) -> None:
    concerned = [page for page in PAGES if question.kind(page)]
    assert concerned or not any(map(held, PAGES)), f"no page is of the kind that {question.thread} asks about"
    silent = {f"{p.family}/{p.record.checkpoint.id}" for p in concerned if not question.answered(p)}
    excused = {name for name in silent if (question.thread, name.partition("/")[0]) in UNANSWERED}
    assert silent - excused == set()
    assert {f for thread, f in UNANSWERED if thread == question.thread} == {name.partition("/")[0] for name in excused}


def test_queries_and_keys_of_a_build_are_read_behind_the_same_steps_as_its_twins() -> None:
    """Where queries are read: behind which of projection, norm and rotary."""
    built = [page for page in PAGES if page.run is not page.record]
    normed = 0
    for page in built:
        twin = Subject(Standing(page.run, None))
        for name in SIDES:
            steps = {way.words for way in paths(page.subject, name)}
            assert steps == {way.words for way in paths(twin, name)}, (page.family, page.record.checkpoint.id, name)
            normed += any("norm" in way.partition(" (")[0] for way in steps)
    assert normed


def test_what_modules_hold_is_in_every_record_or_in_none() -> None:
    without = [f"{family}/{slug}" for family, slug, page in COMMITTED if not page.record.returned]
    assert len(without) in (0, len(COMMITTED)), without[:5]
