"""The arrows inside a drawing's boxes, by a run: what a value's edit moves on its block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from probe.checkpoints import load, targets
from probe.measure.edits import changed
from probe.render.diagram.interior import ATTENTION
from probe.render.diagram.mixer import wiring
from probe.standard import StandardizedTransformer
from probe.standard.inputs import prepare
from probe.standard.trace import Worker, run
from probe.values.hosts import Host

MIXERS = (
    "mamba mamba2 jamba qwen3_next kimi_linear olmo_hybrid rwkv xlstm recurrent_gemma minimax lfm2 falcon_h1 zamba2"
).split()
"""One family at least of each kind of recurrence, and a convolution alone."""

Arrows = list[tuple[list[str], str]]


def _model(family: str) -> StandardizedTransformer:
    target = next(target for target in targets(family) if target.kind == "tiny")
    return StandardizedTransformer(load(target, attn="eager"))


def _values(model: StandardizedTransformer, host: Host, edited: str | None = None) -> dict[str, torch.Tensor]:
    """The values of a host in one forward, in which one of them is edited."""
    found: dict[str, torch.Tensor] = {}

    def worker(name: str) -> Worker:
        def work() -> None:
            value = getattr(host, name)
            if name == edited:
                value.copy_(changed(value.clone(), name, host))
            found[name] = value.detach().clone()

        return work

    served = [name for name, value in host.standard_values().items() if host.refusal(value) is None]
    run(model, prepare(model, None)[1], [worker(name) for name in served])
    return found


def _first_host(model: StandardizedTransformer, name: str) -> Host:
    return next(
        host
        for label, block, host in model.hosts()
        if label.startswith("model.layers[i].") and name in host.standard_values()
        if host.refusal(host.standard_values()[name]) is None
    )


def _reached(model: StandardizedTransformer, host: Host) -> dict[str, set[str]]:
    """What each value's edit moves on the same host."""
    plain = _values(model, host)
    moved: dict[str, set[str]] = {}
    for name in plain:
        if host.standard_values()[name].writable:
            after = _values(model, host, name)
            moved[name] = {other for other in plain if other != name and not torch.equal(after[other], plain[other])}
    return moved


def _unlike(arrows: Arrows, moved: dict[str, set[str]]) -> Iterator[str]:
    """The arrows that no edit bears out, and those that an edit contradicts: what is made from a value moves it."""
    for sources, target in arrows:
        if not any(target in moved[source] for source in sources if source in moved):
            yield f"{' or '.join(sources)} does not move {target}"
        for source in sources:
            if source in moved.get(target, set()):
                yield f"{target} moves {source}"


@pytest.mark.parametrize("family", MIXERS)
def test_a_mixers_arrows_are_what_edits_show(family: str) -> None:
    model = _model(family)
    host = _first_host(model, "attention_premix" if family == "lfm2" else "recurrence_output")
    moved = _reached(model, host)
    names = [name for name in _values(model, host) if name != "attention_output"]
    wired = wiring(names)
    assert wired is not None
    assert list(_unlike(list(wired.arrows()), moved)) == []
    if wired.convolution and wired.result:
        inside = {*wired.taken, *wired.steps}
        assert moved[wired.convolution[-1]] & inside, "the convolution reaches nothing that the recurrence takes"
    assert "attention_output" in moved["attention_premix"]


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "deepseek_v3", "bloom", "gemma4_text"])
def test_an_attentions_arrows_are_what_edits_show(family: str) -> None:
    model = _model(family)
    moved = _reached(model, _first_host(model, "attention_scores"))
    q, k, v, scores, pattern, heads, premix = (f"attention_{name}" for name in ATTENTION)
    pairs = [(q, scores), (k, scores), (scores, pattern), (pattern, heads), (v, heads), (heads, premix)]
    assert list(_unlike([([a], b) for a, b in pairs], moved)) == []
    assert scores not in moved[v]


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss", "deepseek_v3", "qwen3_moe"])
def test_a_routers_weights_and_indices_both_come_from_its_logits(family: str) -> None:
    model = _model(family)
    moved = _reached(model, _first_host(model, "router_logits"))
    assert list(_unlike([(["router_logits"], "expert_weights"), (["router_logits"], "expert_indices")], moved)) == []
    assert "expert_indices" not in moved["expert_weights"]
