"""The families: what a module says wins, what the table says comes next."""

from __future__ import annotations

import pytest

from probe import registry
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


def test_the_nearest_name_does_not_mind_the_case() -> None:
    assert registry.nearest("QWEN3-moe", ["qwen3_moe", "llama"]) == " (nearest: qwen3_moe)"
    assert registry.nearest("google-gemma-4-e2b", ["google/gemma-4-E2B"]) == " (nearest: google/gemma-4-E2B)"
