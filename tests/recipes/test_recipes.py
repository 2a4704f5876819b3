"""Every snippet of a page runs and gives the tensor that the project's own name gives; every edit has its effect.

The first form is what the probe itself reads by, so the other two are compared with the probe's tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from probe.render.recipes import recipes
from probe.render.standing import Standing
from probe.schema import HfPath, Record
from tests.recipes.running import Page, execute, same

KINDS = {
    ("llama", "tiny"): "the plain block",
    ("gemma3_text", "tiny"): "norms on both sides, windows",
    ("gemma4_text", "tiny-moe"): "a scaled sum, a mixture beside the MLP",
    ("gemma4_text", "tiny-vision"): "a vision encoder, borrowed keys and values",
    ("llama4_text", "tiny"): "dense scores of a router, an operation that gives the contribution",
    ("bloom", "tiny"): "the residual inside the modules, an attention of its own",
    ("falcon", "tiny"): "parallel, one head of keys and values",
    ("gpt_neox", "tiny"): "a fused projection",
    ("mixtral", "tiny"): "a mixture with tokens on one axis",
    ("olmo2", "tiny"): "norms after the sublayers only",
    ("granite", "tiny"): "scaled contributions and logits",
    ("qwen3_next", "tiny"): "two kinds of mixers, a gated query",
}


@pytest.mark.parametrize(("family", "twin"), KINDS, ids=lambda name: name)
def test_every_snippet_gives_the_probes_tensor(
    family: str, twin: str, record: Callable[[str, str], Record], record_property: Callable[[str, object], None]
) -> None:
    page = Page(record(family, twin))
    page.run()
    assert page.wrong == []
    counts = {f"{form} {kind}": n for (form, kind), n in sorted(page.ran.items())}
    record_property("snippets", counts)
    print(f"{family} {twin}: {sum(counts.values())} snippets, {counts}")
    assert page.ran["names", "read"] == len([row for row, forms in page.snippets() if forms])
    assert page.ran["nnsight", "read"] >= page.ran["names", "read"] - 2
    assert page.ran["pytorch", "read"] >= 0.5 * page.ran["names", "read"]
    assert page.ran["names", "edit"] == page.ran["nnsight", "edit"] > 0


def test_a_form_that_a_value_does_not_have_says_why(record: Callable[[str, str], Record]) -> None:
    twin = record("bloom", "tiny")
    found = {r.form: r for r in _of(twin, "attention_queries")}
    assert found["names"].read and found["nnsight"].read and found["pytorch"].read is None
    assert found["pytorch"].why and "transformer.h.0.self_attention" in found["pytorch"].why


def test_a_wrong_place_is_told_from_the_right_one(record: Callable[[str, str], Record]) -> None:
    """The comparison would notice a row that names the module before the norm, or another element."""
    page = Page(record("gemma3_text", "tiny"))
    [row] = [v for v in page.record.values if v.name == "attention_output"]
    assert row.hf is not None
    path = row.hf.path.replace("post_attention_layernorm", "self_attn")
    moved = row.model_copy(update={"hf": HfPath(path=path, side="out", element=0), "location": "output[0]"})
    right, wrong = (recipes(Standing(page.record, None), v, True)[2] for v in (row, moved))
    namespace = page.namespaces["pytorch"]
    for kind, name in (("read", "value"), ("edit", "logits")):
        results = []
        for recipe in (right, wrong):
            execute(getattr(recipe, kind), namespace)
            results.append(namespace[name])
        assert not same(results[0], results[1])


def test_an_edit_of_a_contribution_moves_the_logits(record: Callable[[str, str], Record]) -> None:
    page = Page(record("llama", "tiny"))
    namespace = page.namespaces["pytorch"]
    before = namespace["model"](**namespace["inputs"]).logits
    edit = _of(page.record, "mlp_output")[2].edit
    assert edit is not None
    execute(edit, namespace)
    moved = (namespace["logits"] - before).abs().amax(-1)[0]
    assert moved[-1] > 1e-2 and moved[:-1].max() == 0


def _of(record: Record, name: str) -> list:
    row = next(v for v in record.values if v.name == name)
    return recipes(Standing(record, None), row, name in ("attention_output", "mlp_output"))
