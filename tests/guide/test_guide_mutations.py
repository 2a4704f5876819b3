"""A page of the guide that was made wrong on purpose fails: a wrong claim, a swapped name, a wrong number."""

from __future__ import annotations

import pytest

from probe.errors import ProbeError
from probe.guide.measure import follow
from probe.guide.patterns import PATTERNS
from probe.render.references import resolved
from probe.snippets.code import Subject
from tests.notes.typed import typed_numbers

BY_SLUG = {pattern.slug: pattern for pattern in PATTERNS}

MUTATIONS = {
    "a lens without the norm": (
        "logit-lens", "llama", "model.project_on_vocab(stream)[0] for", "model.lm_head._module(stream)[0] for",
    ),
    "a lens on what enters the blocks": (
        "logit-lens", "llama", "layer.layer_output for layer", "layer.layer_input for layer",
    ),
    "a softcap said to be none": (
        "logit-lens", "gemma2", "assert_close(lens[-1], logits[0])", "assert_close(lens[-1], head[0])",
    ),
    "a patch from one position before": (
        "activation-patching", "llama", "= streams[block][:, position]", "= streams[block][:, position - 1]",
    ),
    "the two prompts swapped": ("activation-patching", "llama", "tracer.invoke(other)", "tracer.invoke(clean)"),
    "a patch said to move nothing after it": (
        "activation-patching", "llama",
        "(new[:, :at], old[:, :at]", "(new[:, at:], old[:, at:]",
    ),
    "a neighbouring head's term": (
        "head-ablation", "llama",
        "alone[:, :, head] = premix[:, :, head]", "alone[:, :, head - 1] = premix[:, :, head - 1]",
    ),
    "a projection's bias taken for a head's": (
        "head-ablation", "bloom", " - project(torch.zeros_like(alone).flatten(2))", "",
    ),
    "positions taken for heads": (
        "head-ablation", "llama", "attention.attention_premix[:, :, head] = 0\n    without",
        "attention.attention_premix[:, head] = 0\n    without",
    ),
    "a vector at every position": (
        "steering", "llama", "vector, positions=-1)\n    after", "vector)\n    after",
    ),
    "a contribution's weight forgotten on the way in": (
        "steering", "granite", "vector / term.weight\n    through", "vector\n    through",
    ),
    "a contribution's weight forgotten in the sum": (
        "contributions", "granite", "parts.append(later * term.weight * value)", "parts.append(later * value)",
    ),
    "later blocks' scalars forgotten": (
        "contributions", "gemma4_text", "later = later * sums[block].stream", "later = 1.0",
    ),
    "the module's return taken for the contribution": (
        "contributions", "olmo2", "[layer.get(term.value).clone() for term in each.terms]",
        "[layer.self_attn.output[0], layer.mlp.output]",
    ),
    "what a later add has changed": (
        "contributions", "falcon", "layer.get(term.value).clone()", "layer.get(term.value)",
    ),
    "another stream's scale held": ("contributions", "llama", "last[0, two])", "entered[0, two])"),
}  # fmt: skip


@pytest.mark.parametrize(("slug", "family", "right", "wrong"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_page_made_wrong_fails(slug: str, family: str, right: str, wrong: str) -> None:
    pattern = BY_SLUG[slug]
    text = pattern.path.read_text(encoding="utf-8")
    assert text.count(right) == 1, "the mutation no longer fits the page"
    with pytest.raises(AssertionError):
        follow(pattern, Subject(family, "tiny"), text.replace(right, wrong))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("layer.layer_output for layer", "layer.layer_outputs for layer"),
        ("model.final_norm_output.save()", "model.final_norm_outputs.save()"),
    ],
)
def test_a_name_that_is_not_there_is_no_refusal_of_the_family(right: str, wrong: str) -> None:
    pattern = BY_SLUG["logit-lens"]
    text = pattern.path.read_text(encoding="utf-8")
    with pytest.raises(AttributeError):
        follow(pattern, Subject("llama", "tiny"), text.replace(right, wrong))


def test_a_typed_number_and_a_wrong_reference_are_caught() -> None:
    path = BY_SLUG["logit-lens"].path
    text = path.read_text(encoding="utf-8")
    reference = "{{ quirk softcapped-logits.cap of gemma2 google/gemma-2-2b }}"
    assert text.count(reference) == 1
    assert typed_numbers(text.replace(reference, "30"))
    with pytest.raises(ProbeError, match="logit-lens.md"):
        resolved(path, text.replace("softcapped-logits.cap of gemma2", "softcapped-logits.cap of llama"))
    with pytest.raises(ProbeError, match="logit-lens.md"):
        resolved(path, text.replace("softcapped-logits.cap", "softcapped-logits.height"))
