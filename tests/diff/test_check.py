"""Records edited by hand are caught by `check`, with both readings; untouched ones and rounding are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from probe import jobs
from tests.diff.conftest import FAMILY, TWIN, Desk

Record = dict[str, Any]

PROBE = jobs._probe
"""What measures, before a desk puts its own in its place."""


def _row(rows: list[Record], **wanted: object) -> Record:
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _value(record: Record, name: str) -> Record:
    return _row(record["values"], name=name)


def moved(record: Record) -> None:
    _value(record, "attention_output")["location"] = "q_proj.output"


def native(record: Record) -> None:
    _value(record, "mlp_output")["hf"]["path"] = "model.layers.{i}.mlp.up_proj"


def resized(record: Record) -> None:
    _value(record, "attention_output")["shape"] = [1, 34, 48]


def locked(record: Record) -> None:
    _value(record, "mlp_output")["edits"] = False


def removed(record: Record) -> None:
    record["values"].remove(_value(record, "layer_mid"))


def invented(record: Record) -> None:
    record["values"].append(_value(record, "layer_mid") | {"name": "layer_soul"})


def failing(record: Record) -> None:
    _row(record["identities"], name="block sum").update(holds=False, reason="It does not.")


def beyond(record: Record) -> None:
    _row(record["identities"], name="block sum")["max_abs_error"] = 0.2


def flipped(record: Record) -> None:
    _row(record["experiments"], slug="grouped-query")["verdict"] = "no"


def slower(record: Record) -> None:
    _row(record["experiments"], slug="rescaled-rotary")["measured"]["slowed_at_most"] = 9.0


def counted(record: Record) -> None:
    _row(record["facts"], name="parameters")["value"] += 1


def rescaled(record: Record) -> None:
    _row(record["facts"], name="score_scale")["value"] = 0.3636


def widened(record: Record) -> None:
    record["sizes"]["head_dim"] = 16


def configured(record: Record) -> None:
    _row(record["config"], name="rms_norm_eps")["value"] = 1e-06


def rewired(record: Record) -> None:
    record["shapes"][0]["sublayers"][1]["pre_norm"] = None


def retyped(record: Record) -> None:
    record["layer_types"][1] = "sliding_attention"


def reweighted(record: Record) -> None:
    record["checkpoint"]["digest"] = "0" * 64


def described(record: Record) -> None:
    _value(record, "mlp_output")["description"] = "Something else"


def retold(record: Record) -> None:
    _row(record["facts"], name="parameters")["statement"] = "The checkpoint has 80,593 parameters."


def printed(record: Record) -> None:
    record["printout"] = record["printout"].replace("LlamaMLP", "LlamaMoe")


def unlisted(record: Record) -> None:
    del record["about"]["checkpoints"][0]


EDITS: dict[Callable[[Record], None], tuple[str, str, str]] = {
    moved: ("attention_output", "`q_proj.output`", "`output[0]`"),
    native: ("mlp_output", "mlp.up_proj output`", "`model.layers.{i}.mlp output`"),
    resized: ("attention_output", "`[1, 34, 48]`", "`[1, 35, 48]`"),
    locked: ("mlp_output`, can be edited", "no", "yes"),
    removed: ("layer_mid", "no such row", "is read at"),
    invented: ("layer_soul", "is read at", "no such row"),
    failing: ("“block sum”, holds", "no", "yes"),
    beyond: ("“block sum”, error", "`0.2`", "`0`"),
    flipped: ("Grouped", "no", "yes"),
    slower: ("slowed_at_most", "`9`", "`8`"),
    counted: ("Parameters, value", "`80,593`", "`80,592`"),
    rescaled: ("Scale of the scores", "`0.3636`", "`0.3536`"),
    widened: ("`sizes.head_dim`", "`16`", "`8`"),
    configured: ("`rms_norm_eps`", "`1e-6`", "`1e-5`"),
    rewired: ("sublayer 2, pre_norm", "none", "`post_attention_layernorm`"),
    retyped: ("block 1, layer type", "`sliding_attention`", "`full_attention`"),
    reweighted: ("`checkpoint.digest`", "`0000", "`"),
    described: ("mlp_output`, description", "“Something else”", "“"),
    retold: ("Parameters, statement", "80,593", "80,592"),
    printed: ("print(model)", "LlamaMoe", "LlamaMLP"),
    unlisted: ("Checkpoints: `meta-llama", "no such row", "is listed as"),
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_by_hand_is_told_with_both_readings(desk: Desk, edit: Callable[[Record], None]) -> None:
    desk.edit(edit)
    status, out, _ = desk.run("check", FAMILY, "--checkpoint", TWIN)
    told = [line for line in out.splitlines() if line.startswith("  ")]
    subject, recorded, measured = EDITS[edit]
    assert status == 1 and len(told) == 1, out
    before, _, after = told[0].partition(": recorded ")[2].partition(", measured ")
    assert subject in told[0] and recorded in before and measured in after, told


def _last_digits(record: Record) -> None:
    """What another machine's kernels may round otherwise."""
    for row in record["values"]:
        if row["edit"] and row["edit"]["logits"]:
            digit, _, exponent = f"{row['edit']['logits']:.0e}".partition("e")
            row["edit"]["logits"] = float(f"{min(int(digit) + 1, 9)}e{exponent}")
        if row["edit"] and row["edit"]["exact"]:
            row["edit"]["exact"] *= 4
    for row in record["identities"]:
        row["max_abs_error"] = row["tolerance"] / 20
    for row in record["facts"]:
        if row["name"].startswith("eager_sdpa") or row["name"] == "left_padding":
            row["value"] = 9e-06
            row["statement"] = "Other digits."
        if row["name"] == "score_scale":
            row["value"] = 0.3537
            row["statement"] = row["statement"].replace("0.3536", "0.3537")


@pytest.mark.parametrize(
    "edit", [lambda record: None, _last_digits, lambda record: record["provenance"].update(torch="2")]
)
def test_an_untouched_record_and_other_last_digits_hold(desk: Desk, edit: Callable[[Record], None]) -> None:
    desk.edit(edit)
    assert desk.run("check", FAMILY, "--checkpoint", TWIN)[:2] == (
        0, f"{FAMILY}: 1 record holds.\nAll records of 1 family hold.\n",
    )  # fmt: skip


def _other_block(self: Any, hidden_states: Any, **kwargs: Any) -> Any:
    """A block of a version in which the MLP returns a tuple."""
    attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
    hidden_states = hidden_states + attended
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))[0]


def test_rows_that_another_version_breaks_are_told_with_both_versions(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP

    from probe.record import findings

    findings.forget()
    request.addfinalizer(findings.forget)

    mlp = LlamaMLP.forward
    desk.edit(lambda record: record["provenance"].update(transformers="4.47.0"))
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: (mlp(self, x),))
    monkeypatch.setattr(LlamaDecoderLayer, "forward", _other_block)
    monkeypatch.setattr(jobs, "_probe", PROBE)
    status, out, _ = desk.run("check", FAMILY, "--checkpoint", TWIN)
    assert status == 1 and f"no longer hold; transformers was 4.47.0, is {metadata.version('transformers')}.\n" in out
    assert "`model.layers.{i}.mlp`, type: recorded `Tensor`, measured `tuple`" in out
    assert "element `0`, value: recorded none, measured `model.layers[i].mlp.mlp_output`" in out


def test_real_weights_of_another_device_are_not_checked_and_nothing_else_goes_unchecked(desk: Desk) -> None:
    def elsewhere(record: Record) -> None:
        record["checkpoint"]["kind"] = "weights"
        record["provenance"]["device"] = "cuda"

    desk.edit(elsewhere)
    assert "kind`: recorded `weights`, measured `tiny`" in desk.run("check", FAMILY, "--checkpoint", TWIN)[1]
    desk.text = desk.text.replace('"kind": "tiny",\n  "model_type"', '"kind": "weights",\n  "model_type"')
    desk.edit(moved)
    status, out, _ = desk.run("check", FAMILY, "--checkpoint", TWIN)
    assert status == 0 and f"not checked, as what was measured is not here: {TWIN}" in out


def test_what_was_measured_is_written_beside_and_never_over_the_records(desk: Desk) -> None:
    desk.edit(moved)
    other = desk.folder.parent / "measured"
    edited = desk.record.read_text()
    assert desk.run("check", FAMILY, "--checkpoint", TWIN, "--into", str(other))[0] == 1
    assert desk.record.read_text() == edited
    assert (other / FAMILY / f"{TWIN}.json").read_text() == desk.text


def test_what_holds_is_not_measured_again_until_a_record_changes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe import checkpoints

    targets = [target for target in checkpoints.targets(FAMILY) if target.id == TWIN]
    monkeypatch.setattr(checkpoints, "targets", lambda family: targets)
    assert desk.run("check", FAMILY)[0] == 0 and desk.runs == [TWIN]
    assert desk.run("check", FAMILY)[0] == 0 and desk.runs == [TWIN]
    assert desk.run("check", FAMILY, "--force")[0] == 0 and desk.runs == [TWIN, TWIN]
    desk.edit(counted)
    assert desk.run("check", FAMILY)[0] == 1 and desk.runs == [TWIN, TWIN, TWIN]
    assert desk.run("check", FAMILY)[0] == 1 and len(desk.runs) == 4


def test_a_check_of_every_family_says_so_first_and_how_to_name_one(desk: Desk) -> None:
    _, _, err = desk.run("check")
    assert err.partition("\n")[0].startswith("No family is named, so all 1 with records are checked")
    assert f"`python -m probe check {FAMILY}`" in err
    assert "No family is named" not in desk.run("check", FAMILY)[2]


def test_a_cache_that_cannot_be_written_costs_no_verdict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe import checkpoints

    targets = [target for target in checkpoints.targets(FAMILY) if target.id == TWIN]
    monkeypatch.setattr(checkpoints, "targets", lambda family: targets)
    (desk.folder.parent / "file").write_text("")
    monkeypatch.setenv("PROBE_CACHE", str(desk.folder.parent / "file"))
    status, out, err = desk.run("check", FAMILY)
    assert status == 0 and out.endswith("All records of 1 family hold.\n")
    assert "The next check measures again what holds: " in err and "PROBE_CACHE" in err


def test_a_folder_of_measured_records_that_cannot_be_made_is_named_without_another_remedy(desk: Desk) -> None:
    (desk.folder.parent / "file").write_text("")
    status, _, err = desk.run("check", FAMILY, "--into", str(desk.folder.parent / "file" / "in"))
    assert status == 2 and err.endswith("mend that, or name another folder.\n") and desk.runs == []


def test_a_record_that_is_none_and_one_that_nothing_measures_are_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from probe import checkpoints

    targets = [target for target in checkpoints.targets(FAMILY) if target.id in (TWIN, "tiny-mha")]
    monkeypatch.setattr(checkpoints, "targets", lambda family: targets)
    stray = json.loads(desk.text)
    stray["checkpoint"]["id"] = "org/gone"
    (desk.record.parent / "org--gone.json").write_text(json.dumps(stray))
    desk.record.write_text(desk.record.read_text()[:-20])
    status, out, _ = desk.run("check", FAMILY)
    assert status == 1
    assert "is not JSON" in out and "org--gone.json: remove it" in out and "llama · tiny-mha: has no record." in out


def test_a_run_that_fails_is_told_and_is_no_verdict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = lambda job, options, progress=None: jobs.Outcome(job, message="The two readings differ.", status=3)  # noqa: E731
    monkeypatch.setattr(jobs, "_probe", failed)
    status, out, _ = desk.run("check", FAMILY, "--checkpoint", TWIN)
    assert status == 3 and "llama · tiny: The two readings differ." in out


def test_a_folder_of_records_that_is_not_there_is_no_clean_bill(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_RECORDS", str(desk.folder / "nowhere"))
    status, out, err = desk.run("check")
    assert status == 2 and out == "" and "PROBE_RECORDS names it" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("check", "lama"), "There is no family 'lama' (nearest: llama"),
        (("check", "gemma3_text"), "gemma3_text has no records to check"),
        (("check", FAMILY, "--checkpoint", "tini"), "Nothing of llama that can be measured here is called 'tini'"),
        (("check", "--since", "no-such-revision"), "'no-such-revision' is neither a revision"),
        (("diff", "no-such-revision"), "'no-such-revision' is neither a revision of this repository nor a folder"),
    ],
)
def test_a_mistake_is_one_sentence(desk: Desk, arguments: tuple[str, ...], sentence: str) -> None:
    status, _, err = desk.run(*arguments)
    assert status == 2 and sentence in err and err.count("\n") == 1
