"""Questions that a command answers: `read` refuses in the page's words, and other tools' names are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe import cli, names
from tests.render.knowing import COMMITTED


def test_read_under_sdpa_refuses_with_the_rows_own_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["read", "llama", "attention_probabilities", "--attn", "sdpa"]) == 4
    (page,) = [page for family, slug, page in COMMITTED if (family, slug) == ("llama", "tiny")]
    (row,) = [row for row in page.record.values if row.name == "attention_probabilities"]
    assert row.reason and row.reason.partition(" (")[0].rstrip(".") in capsys.readouterr().err


def test_read_says_where_an_encoder_without_names_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "qwen3_vl_text").mkdir()
    rows = {"values": [{"name": "logits"}], "images": {"stations": [{"path": "model.visual.merger"}]}}
    (tmp_path / "qwen3_vl_text" / "tiny.json").write_text(json.dumps(rows))
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path))
    assert cli.main(["read", "qwen3_vl_text", "patch_embeddings"]) == 4
    assert "no standard names: hook its modules, which are model.visual.merger" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("cohere", "layer_mid"), "cohere has no layer_mid. Parallel block: "),
        (
            ("phi", "hook_resid_mid"),
            "'hook_resid_mid' is TransformerLens's name for layer_mid, which phi does not have. ",
        ),
        (("phi", "layers.0.layer_mid"), "phi has no layer_mid. Parallel block: "),
        (("doge", "router_logits"), "tiny of doge has no router_logits, and tiny-moe has one: name it with --chec"),
        (("llama4_text", "vision.layer_output"), "tiny of llama4_text has no vision.layer_output, and tiny-vision "),
        (("mamba", "attention_probabilities"), "No record of mamba has a value 'attention_probabilities'"),
    ],
)
def test_read_refuses_in_whole_sentences(asked: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["read", *asked]) != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("llama", "hidden_states"), "entries 0 to 2: layer_input of blocks 0 to 2; entry 3: final_norm_output."),
        (("llama", "attentions"), "output_attentions=True fills under eager attention: in the run entries 0 to 2: "),
        (("llama", "model.layers.1.self_attn.o_proj"), "model.layers.{i}.self_attn.o_proj (input: attention_premix, "
                                                       "output: attention_output"),
        (("gpt2", "attn.c_attn"), "is a module's path, and no value's name: transformer.h.{i}.attn.c_attn ("),
    ],
)  # fmt: skip
def test_read_tells_what_a_module_or_a_field_is_here(
    asked: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["read", *asked]) != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("hook_mlp_in", "mlp_input"), ("hook_attn_in", "attention_norm_output")])
def test_the_same_name_for_another_tensor_is_marked(name: str, value: str) -> None:
    (found,) = [each for each in names.of(value) if each.name.endswith(f".{name}")]
    assert found.differs and (first := names.standard(name)) and first.value == value


def test_names_are_of_values_that_there_are() -> None:
    known = {row.name for _, _, page in COMMITTED for row in page.record.values}
    assert {name.value for name in names.NAMES} <= known and {name.tool for name in names.NAMES} == set(names.TOOLS)
