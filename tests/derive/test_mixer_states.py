"""States of mixers: after many tokens, with a cache, for each invoke, in half precision, under a fused kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from probe.checkpoints import factory
from probe.derive.draft import draft
from probe.measure.checks import mixer
from probe.measure.checks import recurrences as plain
from probe.measure.identities import evaluate
from probe.measure.run import measure
from probe.standard import trace
from tests.derive.mixers import loaded, run_of


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear", "mamba", "mamba2", "minimax", "rwkv", "xlstm"])
def test_states_after_many_tokens(family: str) -> None:
    """Longer than any function's chunk, so that its loop runs more than once."""
    model = loaded(family)
    run = measure(model, "The Eiffel Tower is in the city of Paris, and it is tall. " * 3)
    assert run.inputs["input_ids"].shape[1] > 128
    found = evaluate(run, run.text, mixer.checks(run.text))
    assert any(identity.name == "state after the last token of the mixer" for identity in found)
    assert [identity for identity in found if not identity.holds] == []


@pytest.mark.parametrize("family", ["qwen3_next", "mamba", "zamba", "mamba2", "lfm2", "recurrent_gemma", "minimax"])
def test_a_prefill_with_a_cache_reads_the_same(family: str) -> None:
    run = run_of(family)
    mixing = lambda key: key.host.endswith("linear_attn")  # noqa: E731
    readings = [trace.read_all(run.model, {**run.inputs, "use_cache": cached}, mixing) for cached in (False, True)]
    assert readings[0] and readings[0].keys() == readings[1].keys()
    for key, value in readings[0].items():
        assert torch.equal(value, readings[1][key]), key


@pytest.mark.parametrize("family", ["zamba", "mamba", "qwen3_next"])
def test_each_invoke_reads_its_own_rows(family: str) -> None:
    """Also where the rows stand on another axis than the first."""
    model = loaded(family)
    ids = run_of(family).inputs["input_ids"]
    index = next(block for block in range(len(model.layers)) if hasattr(model.layers[block], "linear_attn"))
    host: Any = model.layers[index].linear_attn
    names = [name for name in ("mixer_b", "attention_keys", "state_out", "token_states") if name in host.support()]
    names = [name for name in names if host.support()[name] is None]
    rows = [ids, ids.flip(1)]

    def read(groups: list[torch.Tensor], name: str) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        with torch.no_grad(), model.trace() as tracer:
            for group in groups:
                with tracer.invoke(input_ids=group, attention_mask=torch.ones_like(group)):
                    found.append(getattr(host, name).clone())
        return found

    for name in names:
        together = read(rows, name)
        for row, value in zip(rows, together, strict=True):
            (alone,) = read([row], name)
            assert value.shape == alone.shape and value.shape[0] == 1
            assert torch.allclose(value, alone, atol=1e-5), name


@pytest.mark.parametrize("family", ["bamba", "jamba", "lfm2", "mamba", "minimax", "qwen3_next", "rwkv", "zamba"])
def test_half_precision_changes_no_location(family: str) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        module = factory.build_default(family, "tiny").to(dtype)
        hosts = [host for block in draft(module, factory.default_inputs(module)).blocks for host in block.hosts]
        mixers = [host for host in hosts if host.role == "mixer"]
        assert mixers
        found.append([{name: (value.at, value.axes) for name, value in host.values.items()} for host in mixers])
    assert found[0] == found[1]


def test_where_an_observed_value_is_read_in_words() -> None:
    values = loaded("mamba").layers[0].linear_attn.standard_values()
    assert values["token_states"].words.endswith("inside mamba_selective_scan_0, once a token")
    assert values["state_out"].words.endswith(", the last time") and values["state_out"].passes == ["last"]
    values = loaded("zamba").layers[0].linear_attn.standard_values()
    assert values["token_states"].words.endswith(", once a token, for each head")
    assert values["token_states"].passes == ["each token", "each head"]


def test_a_state_is_carried_on() -> None:
    """The second half of a sequence, started from the state after the first, reads and ends as the whole does."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    q, k, v, g, b = draw(1, 2, 8, 4), draw(1, 2, 8, 4), draw(1, 2, 8, 3), -draw(1, 8, 2).abs(), draw(1, 8, 2).sigmoid()
    whole, states = plain.delta(q, k, v, g, b, None, normed=True)
    parts = [t[:, :, 4:] for t in (q, k, v)] + [t[:, 4:] for t in (g, b)]
    rest, more = plain.delta(*parts, states[:, 3], normed=True)
    assert torch.allclose(whole[:, 4:], rest, atol=1e-5) and torch.allclose(states[:, -1], more[:, -1], atol=1e-5)
    x, b, c, step = draw(1, 8, 2, 3), draw(1, 8, 1, 4), draw(1, 8, 1, 4), draw(1, 8, 2).abs()
    decay = -step[..., None, None]
    whole, states = plain.scan(x, b, c, step, decay, None)
    rest, more = plain.scan(*(t[:, 4:] for t in (x, b, c, step, decay)), states[:, 3])
    assert torch.allclose(whole[:, 4:], rest, atol=1e-5) and torch.allclose(states[:, -1], more[:, -1], atol=1e-5)


def _fused(query: Any, key: Any, value: Any, g: Any, beta: Any, **options: Any) -> Any:
    """Another package's kernel, as far as the model can tell."""
    result, states = plain.delta(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), g, beta, None, normed=True
    )
    return result, states[:, -1] if options["output_final_state"] else None


def test_a_fused_kernel_is_told_from_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next

    module = factory.build_default("qwen3_next", "tiny")
    inputs = factory.default_inputs(module)
    first = lambda: draft(module, inputs).blocks[0].hosts[1].values  # noqa: E731
    usual = first()
    assert "as plain PyTorch" in usual["recurrence_output"].description
    monkeypatch.setattr(modeling_qwen3_next, "torch_chunk_gated_delta_rule", _fused)
    fused = first()
    assert "_fused ran, as a fused kernel" in fused["recurrence_output"].description
    for name in ("attention_queries", "mixer_beta", "recurrence_output", "mixer_gate", "attention_premix"):
        assert fused[name].at is not None
    for name in ("state_in", "state_out", "token_states"):
        assert fused[name].at is None and "fused kernel" in (fused[name].reason or "")
