"""What a recipe says where it cannot be written, and that a wrong one would be told from a right one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from probe.measure.run import measure
from probe.record.findings import twin
from probe.record.modules.known import Known
from probe.record.modules.returned import returned
from probe.render.recipes import recipes
from probe.render.standing import Standing
from probe.schema import HfPath, Record, Returned
from tests.recipes.running import Page, execute, same


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
    right, wrong = (recipes(Standing(page.record, None), v)[2] for v in (row, moved))
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


def test_a_contribution_behind_an_operation_is_hooked_on_the_module_that_returns_it(
    record: Callable[[str, str], Record],
) -> None:
    """Llama 4's mixture returns its tokens on one axis, and the block gives them their shape."""
    seen = returned_rows("llama4_text")
    page = Page(record("llama4_text", "tiny").model_copy(update={"returned": seen}))
    found = {r.form: r for r in _of(page.record, "mlp_output")}
    assert found["pytorch"].read and found["pytorch"].edit and "feed_forward" in found["pytorch"].edit
    for kind, name in (("read", "value"), ("edit", "logits")):
        for form in ("names", "pytorch"):
            execute(getattr(found[form], kind), page.namespaces[form])
        given, wanted = (page.namespaces[form][name] for form in ("pytorch", "names"))
        assert same(given, wanted)
    assert not same(wanted, page.unedited)


def test_a_blocks_output_is_read_alike_whether_it_is_a_tuple_or_not(record: Callable[[str, str], Record]) -> None:
    """A block that returns a tuple under one version of transformers returns a tensor under another."""
    told = {family: _of(record(family, "tiny"), "layer_output") for family in ("bloom", "llama")}
    for form in (1, 2):
        reads = {
            family: (forms[form].read or "").replace("transformer.h", "model.layers") for family, forms in told.items()
        }
        assert "isinstance(output, (tuple, list))" in reads["bloom"]
        assert reads["bloom"] == reads["llama"]


def returned_rows(family: str) -> list[Returned]:
    """What the modules of a twin return, as it is measured now."""
    run = measure(twin(family, "tiny"))

    def forward() -> None:
        with torch.no_grad():
            run.model._module(**run.inputs, use_cache=False)

    return returned(run, Known(run), forward)


def _of(record: Record, name: str) -> list:
    row = next(v for v in record.values if v.name == name)
    return recipes(Standing(record, None), row)
