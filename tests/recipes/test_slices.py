"""What the snippets of single heads and experts take out is that head's or that expert's, and nothing else's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from probe.measure.run import measure
from probe.record.findings import twin
from probe.record.modules import rows
from probe.record.modules.experts import experts
from probe.record.modules.weights import weights
from probe.render.recipes import recipes
from probe.render.recipes.names import TRACE
from probe.render.recipes.place import is_added
from probe.render.recipes.slices import EXPERTS, RUN, Slice, slices
from probe.render.standing import Standing
from probe.schema import Record, Value
from tests.recipes.running import Page, execute, same

KINDS = {
    ("llama", "tiny"): "grouped heads, a projection each",
    ("gpt2", "tiny"): "three blocks of a transposed projection",
    ("gpt_neox", "tiny"): "each head's three beside each other",
    ("falcon", "tiny-grouped"): "queries with the key and the value they share",
    ("deepseek_v3", "tiny"): "keys and values out of one latent",
    ("mixtral", "tiny"): "stacked experts",
    ("gpt_oss", "tiny"): "stacked experts with biases, transposed",
    ("qwen3_next", "tiny"): "a gate beside the queries; experts beside a shared one",
    ("gemma4_text", "tiny-moe"): "experts in the block, beside an MLP",
    ("llama4_text", "tiny"): "experts that all run, on inputs that are zero",
    ("dbrx", "tiny"): "experts side by side in a matrix; queries, keys and values in one",
}
each_kind = pytest.mark.parametrize(("family", "name"), KINDS, ids=lambda name: name)


@cache
def page_of(record: Callable[[str, str], Record], family: str, name: str) -> Page:
    """A twin's page with the weights that are measured now."""
    run = measure(twin(family, name))
    found = rows([*weights(run), *experts(run)])
    return Page(record(family, name).model_copy(update={"weights": found}))


def sliced(page: Page, *what: str) -> list[tuple[Value, Slice]]:
    """A page's snippets of the values of these names; of all, where none is given."""
    standing = Standing(page.record, None)
    return [(v, found) for v in page.record.values if not what or v.name in what for found in slices(standing, v)]


def read(page: Page, value: Value) -> torch.Tensor:
    """A value as the page's first form reads it."""
    return _run(page, _reading(page, value), "value")


def without(page: Page, found: Slice, h: int, value: Value) -> torch.Tensor:
    """A value while the snippet has taken out head or expert ``h``."""
    code = found.code["names"].replace("h = 0", f"h = {h}", 1)
    assert code.count(RUN["names"]) == 1
    return _run(page, code.replace(RUN["names"], _reading(page, value)), "value")


def _reading(page: Page, value: Value) -> str:
    code = recipes(Standing(page.record, None), value)[0].read
    assert code is not None
    return code


def _run(page: Page, code: str, result: str) -> Any:
    namespace = page.namespaces["names"]
    execute(code, namespace)
    return namespace[result]


def on_host(page: Page, beside: Value, name: str) -> Value:
    """A value of the same host."""
    return next(v for v in page.record.values if (v.host, v.module, v.name) == (beside.host, beside.module, name))


def _axis(value: Value) -> int:
    return next(place for place, dim in enumerate(value.dims) if "heads" in dim)


@each_kind
def test_a_heads_part_of_a_weight_changes_that_heads_values_alone(
    family: str, name: str, record: Callable[[str, str], Record]
) -> None:
    page = page_of(record, family, name)
    found = sliced(page, "attention_queries", "attention_keys", "attention_values")
    assert found
    for value, each in found:
        if value.blocks and each.path != each.weight.path.replace("{i}", str(value.blocks[0])):
            continue  # the page reads the value on its first block
        count = each.weight.counts[value.name]
        before = read(page, value)
        after = without(page, each, count - 1, value)
        moved = (after - before).abs().movedim(_axis(value), 0).flatten(1).amax(1) > 1e-5
        share = len(moved) // count
        assert moved.tolist() == [False] * (len(moved) - share) + [True] * share, (value.name, each.path)
        assert same(read(page, value), before), f"{each.path} is not as it was"


@each_kind
def test_without_its_part_of_the_output_projection_a_head_adds_nothing(
    family: str, name: str, record: Callable[[str, str], Record]
) -> None:
    page = page_of(record, family, name)
    [(value, each), *_] = sliced(page, "attention_output")
    heads = on_host(page, value, "attention_head_outputs")
    h = each.weight.counts["attention_output"] - 1
    host = value.host.removeprefix("model.").replace("[i]", f"[{(value.blocks or [0])[0]}]")
    index = ", ".join([":"] * _axis(heads) + [str(h)])
    cut = f"{TRACE}\n    model.{host}.attention_head_outputs[{index}] = 0\n    logits = model.logits.save()"
    wanted = _run(page, cut, "logits")
    found = _run(page, each.code["names"].replace("h = 0", f"h = {h}", 1), "logits")
    assert same(found, wanted) and not same(found, page.unedited)


@each_kind
def test_an_experts_part_changes_the_tokens_that_were_sent_to_it_alone(
    family: str, name: str, record: Callable[[str, str], Record]
) -> None:
    page = page_of(record, family, name)
    found = [(value, each) for value, each in sliced(page) if each.what == "expert"]
    assert bool(found) == any(v.name == "expert_indices" and v.blocks for v in page.record.values)
    for value, each in found:
        chosen = read(page, on_host(page, value, "expert_indices"))
        added = next(v for v in page.record.values if v.host == value.host and is_added(page.record, v))
        added = added.model_copy(update={"blocks": value.blocks})  # the first blocks may be dense
        before = read(page, added)
        sent = [(chosen == h).any(-1) for h in range(each.weight.counts[EXPERTS])]
        h = next(h for h, tokens in enumerate(sent) if 0 < tokens.sum() < tokens.numel())
        moved = (without(page, each, h, added) - before).abs().amax(-1) > 1e-6
        assert moved.flatten().tolist() == sent[h].flatten().tolist(), each.path
        assert same(read(page, added), before), f"{each.path} is not as it was"
