"""A lens where no chain of modules leads to the logits: writing over what the last block returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probe.experiments.stream.tail import tail_facts

RunOf = Callable[..., Any]
PROMPT = torch.arange(40, 49)[None]


def test_it_is_told_whether_the_last_block_decides_the_logits(run_of: RunOf) -> None:
    assert [fact.name for fact in tail_facts(run_of("gemma3n_text"))] == ["lens_by_writing"]
    assert [fact.name for fact in tail_facts(run_of("hrm_text"))] == ["logits_take_more"]
    assert tail_facts(run_of("llama")) == tail_facts(run_of("blt")) == []


@pytest.mark.parametrize("index", [3, -1])
def test_writing_over_the_last_block_is_what_the_model_does_to_a_stream(run_of: RunOf, index: int) -> None:
    """Gemma 3n projects its streams, scales each as large as the first, and heads their mean."""
    model = run_of("gemma3n_text").model
    with torch.no_grad(), model.trace(PROMPT):
        stream = model.layers[index].layer_output.save()
        model.layers[-1].layer_output[:] = stream
        logits = model.logits.save()
    held, streams = model._module.model, stream.movedim(2, 0)
    with torch.no_grad():
        parts = [streams[0], *(p(s) for p, s in zip(held.altup_unembed_projections, streams[1:], strict=True))]
        size = [part.square().mean(-1, keepdim=True).sqrt() for part in parts]
        scaled = torch.stack([part * size[0] / each for part, each in zip(parts, size, strict=True)])
        wanted = model._module.lm_head(held.norm(scaled.mean(0)))
        cap = model.text_config.final_logit_softcapping
        wanted = torch.tanh(wanted / cap) * cap if cap else wanted
    assert torch.allclose(logits, wanted, atol=1e-3)
