"""What a note refers to is looked up in a record, and a reference that nothing answers stops the build."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probe.errors import ProbeError
from probe.render import notes
from probe.render.references import resolved

from .files import NOTES, ROOT

Write = Callable[..., Path]

E2B = "google/gemma-4-E2B-it"


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(text: str, name: str = "gemma4_text.md") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.name)
def test_every_reference_of_a_note_resolves(path: Path) -> None:
    text = resolved(path)
    assert "{{" not in text and "<!-- on:" not in text


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (f"sizes.head_dim of {E2B}", "256"),
        (f"sizes.vocab_size of {E2B}", "262,144"),
        (f"block_sizes.head_dim[4] of {E2B}", "512"),
        (f"config.sliding_window of {E2B}", "512"),
        (f"config.tie_word_embeddings of {E2B}", "true"),
        (f"vision_config.pooling_kernel_size of {E2B}", "3"),
        (f"vision.sizes.patch_size of {E2B}", "16"),
        (f"layer_types.full_attention of {E2B}", "4, 9, 14, 19, 24, 29 and 34"),
        (f"quirk borrowed-kv.blocks of {E2B}", "15 to 34"),
        (f"quirk softcapped-logits.cap of {E2B}", "30"),
        (f"vision quirk pooled-projector.side of {E2B}", "3"),
        ("fact score_scale of tiny", "1"),
        ("fact  score_scale\nof tiny", "1"),
    ],
)
def test_a_reference_becomes_what_the_record_holds(written: Write, reference: str, answer: str) -> None:
    assert resolved(written(f"It is {{{{ {reference} }}}}.")) == f"It is {answer}."


@pytest.mark.parametrize(
    "reference",
    [
        "sizes.head_dim",
        "sizes.head_dim of google/gemma-4-E9B",
        f"sizes.head_dmi of {E2B}",
        f"block_sizes.head_dim[99] of {E2B}",
        f"block_sizes.head_dim of {E2B}",
        f"config.no_such_row of {E2B}",
        f"layer_types.chunked_attention of {E2B}",
        "fact no_such_fact of tiny",
        f"quirk softcapped-logits.no_such_number of {E2B}",
        f"quirk no-such-quirk.cap of {E2B}",
        "vision.sizes.patch_size of tiny",
        "sizes.head_dim of ../llama/tiny",
    ],
)
def test_an_unanswered_reference_names_the_file_and_itself(written: Write, reference: str) -> None:
    with pytest.raises(ProbeError) as caught:
        resolved(written(f"It is {{{{ {reference} }}}}."))
    assert "gemma4_text.md" in str(caught.value) and reference in str(caught.value)


def test_a_reference_in_code_is_left_alone_and_one_in_the_page_is_not(written: Write) -> None:
    path = written("<!-- on: tiny -->\n\nWidth {{ sizes.head_dim of tiny }}.\n\n```python\nx = '{{ y }}'\n```\n")
    assert "x = '{{ y }}'" in resolved(path)
    page = str(notes.note(path, "n-"))
    assert "Width 8." in page and "<code>tiny</code>" in page and "on: tiny" not in page


def test_what_a_notes_code_stands_on_is_linked_on_the_page_of_its_checkpoint(written: Write) -> None:
    path = written("<!-- on: tiny -->\n\nA.\n\n```python\nx = 1\n```\n")
    assert '<a href="../tiny/#stands">“What the snippets stand on”</a>' in str(
        notes.note(path, "n-", lambda checkpoint: f"../{checkpoint}/")
    )


def test_a_note_says_what_its_code_ran_on(written: Write) -> None:
    text = "<!-- on: tiny -->\n\nA.\n\n<!-- on: tiny-moe under sdpa -->\n\nB.\n\n<!-- on: org/name -->\n"
    said = resolved(written(text))
    assert said.index("The code below ran on `tiny`") < said.index("*Ran on `tiny-moe`, under sdpa:*")
    assert "*Ran on `org/name` in float32:*" in said


def test_the_records_at_hand_come_before_the_committed_ones(
    written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "records" / "gemma4_text" / "google--gemma-4-E2B-it.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"sizes": {"head_dim": 7}}')
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path / "records"))
    note = written(f"{{{{ sizes.head_dim of {E2B} }}}} and {{{{ sizes.num_heads of {E2B} }}}}")
    assert resolved(note) == "7 and 8"


def test_what_a_fact_measured_is_told_by_its_name(
    written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "gemma4_text" / "tiny.json"
    record.parent.mkdir()
    fact = {"name": "past", "value": 96, "measured": {"positions": [7, 9], "blocks": [0, 1, 2, 4], "empty": []}}
    record.write_text(json.dumps({"facts": [fact]}))
    monkeypatch.setenv("PROBE_RECORDS", str(tmp_path))
    note = written("{{ fact past of tiny }}: {{ fact past.positions of tiny }} on {{ fact past.blocks of tiny }}")
    assert resolved(note) == "96: 7, 9 on 0, 1, 2 and 4"
    for absent in ("empty", "value"):
        with pytest.raises(ProbeError, match=f"fact past.{absent}"):
            resolved(written(f"{{{{ fact past.{absent} of tiny }}}}"))


def test_references_are_light() -> None:
    heavy = "('torch', 'numpy', 'transformers', 'nnsight')"
    script = f"import sys, probe.render.references; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
