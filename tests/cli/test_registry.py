"""The families: what a module says wins, what the table says comes next."""

from __future__ import annotations

import pytest

from probe import registry
from probe.errors import ProbeError
from tests.cli.conftest import World

HEAD = "model_type\tclass\tgroup\twrapper\ttitle\tcheckpoints\n"


@pytest.mark.parametrize(
    ("name", "class_name", "title"),
    [
        ("qwen3", "Qwen3ForCausalLM", "Qwen3"),
        ("gemma3n_text", "Gemma3nForCausalLM", "Gemma3n"),
        ("aria_text", "AriaTextForCausalLM", "Aria"),
        ("openai-gpt", "OpenAIGPTLMHeadModel", "OpenAIGPT"),
        ("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", "MiniMaxM3VL"),
        ("internlm3", "LlamaForCausalLM", "internlm3"),
        ("gpt-sw3", "GPT2LMHeadModel", "gpt-sw3"),
    ],
)
def test_a_title_is_made_of_the_classs_name_unless_that_is_another_familys(
    name: str, class_name: str, title: str
) -> None:
    assert registry.title(name, class_name) == title


def test_a_module_wins_over_the_table(world: World) -> None:
    (world.families / "families.tsv").write_text(
        f"{HEAD}alpha_text\tAForCausalLM\ttext\t\tTable\torg/table\n"
        "gamma_text\t\ttext-in-wrapper\tgamma_vl\tGamma\torg/a,org/b\n"
    )
    (world.families / "twins.json").write_text('{"gamma_text": {"tiny": "org__a", "tiny-two": null}}')
    assert registry.names() == ["alpha_text", "beta_text", "gamma_text"]
    assert registry.modules() == ["alpha_text", "beta_text"]
    alpha, gamma = registry.get("alpha_text"), registry.get("gamma_text")
    assert (alpha.title, alpha.origin, alpha.root, bool(alpha.path)) == ("Alpha", "module", "alpha_text", True)
    assert (gamma.title, gamma.origin, gamma.root, gamma.path) == ("Gamma", "table", "gamma_vl", None)
    assert gamma.checkpoints == ("org/a", "org/b") and gamma.doc == ""
    assert gamma.twins == {"tiny": {"config": "org__a"}, "tiny-two": {}}


def test_titles_are_one_familys_each_and_checkpoints_are_listed_once() -> None:
    titles = [family.title for family in registry.families()]
    assert len(set(titles)) == len(titles)
    listed = [hub_id for family in registry.families() for hub_id in family.checkpoints]
    assert len(set(listed)) == len(listed) and all(hub_id.count("/") == 1 for hub_id in listed)


@pytest.mark.parametrize(
    ("word", "family"),
    [
        ("LlamaForCausalLM", "llama"),
        ("Qwen2VLForConditionalGeneration", "qwen2_vl_text"),
        ("Gemma3TextConfig", "gemma3_text"),
        ("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense"),
        ("gemma4", "gemma4_text"),
        ("GPT-2", "gpt2"),
        ("Trinity Mini", "afmoe"),
        ("meta-llama/Llama-3.1-8B", "llama"),
    ],
)
def test_what_else_names_a_family_is_told_as_its(word: str, family: str) -> None:
    with pytest.raises(ProbeError, match=rf"\((that is|a checkpoint of the family) {family}( here)?\)"):
        registry.get(word)


@pytest.mark.parametrize("word", ["", "Model", "tiny", "nowhere/Llama", "BertModel"])
def test_a_word_that_tells_no_family_is_taken_for_none(word: str) -> None:
    assert registry.meant(word) == ""


def test_the_nearest_name_does_not_mind_the_case() -> None:
    assert registry.nearest("QWEN3-moe", ["qwen3_moe", "llama"]) == " (nearest: qwen3_moe)"
    assert registry.nearest("google-gemma-4-e2b", ["google/gemma-4-E2B"]) == " (nearest: google/gemma-4-E2B)"
