"""A block's sum as weights: what they multiply is what leaves the block, and a sum without fixed weights is refused."""

from __future__ import annotations

import pytest
import torch

from probe.errors import ProbeError
from probe.record.findings import twin
from probe.standard import UnavailableValue

FAMILIES = ["llama", "gemma4_text", "granite", "bloom", "mamba2"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weighted_terms_are_the_block(family: str) -> None:
    model = twin(family, "tiny")
    sums = model.block_sums()
    with torch.no_grad(), model.trace("Another prompt"):
        streams = [layer.layer_input.clone() for layer in model.layers].save()
    for block, (stream, found) in enumerate(zip(streams, sums, strict=True)):
        with torch.no_grad(), model.trace("Another prompt"):
            terms = [model.layers[block].get(term.value).clone() for term in found.terms].save()
            out = model.layers[block].layer_output.save()
        whole = found.stream * stream + sum(t.weight * v for t, v in zip(found.terms, terms, strict=True))
        torch.testing.assert_close(whole + found.constant, out, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("openai-gpt", r"block 0 norms the stream itself \(ln_1\)"),
        ("deepseek_v4", "block 0 multiplies by what it computes from the stream"),
    ],
)
def test_a_sum_without_fixed_weights_is_refused(family: str, why: str) -> None:
    with pytest.raises(ProbeError, match=why):
        twin(family, "tiny").block_sums()


@pytest.mark.parametrize("family", ["llama", "bloom", "granite"])
def test_the_parts_of_a_stream_give_what_the_head_gives(family: str) -> None:
    """Bloom's norm takes off the mean and has a bias; Granite's logits are scaled past the head."""
    model = twin(family, "tiny")
    with torch.no_grad(), model.trace("Another prompt"):
        last = model.layers[-1].layer_output.save()
        head = model.lm_head_output.save()
    first = torch.randn(last.shape, generator=torch.Generator().manual_seed(0)) * last.std()
    with torch.no_grad():
        given = model.attribute(torch.stack([first, last - first]), last).sum(0)
    left = head - given
    torch.testing.assert_close(left, left[:, :1].expand_as(left), atol=1e-3, rtol=1e-3)
    assert (float(left.abs().max()) > 0.1) == (family == "bloom")
    with torch.no_grad():
        other = model.attribute(first, first)
    assert not torch.allclose(other, model.attribute(first, last), rtol=1e-2)


def test_the_blocks_that_serve_a_value_or_the_reason() -> None:
    hybrid = twin("qwen3_next", "tiny")
    assert [block for block, _ in hybrid.hosts_of("attention_scores")] == [
        block for block, kind in enumerate(hybrid.layer_types) if kind == "full_attention"
    ]
    assert len(hybrid.hosts_of("attention_premix")) > len(hybrid.hosts_of("attention_premix", "attention")) > 0
    with pytest.raises(UnavailableValue, match="No attention of a block of mamba2 has attention_premix"):
        twin("mamba2", "tiny").hosts_of("attention_premix", "attention")
    with pytest.raises(UnavailableValue, match="no module takes the heads' outputs"):
        twin("jetmoe", "tiny").hosts_of("attention_premix")
    with pytest.raises(UnavailableValue, match="No part of a block of llama has router_logits"):
        twin("llama", "tiny").hosts_of("router_logits")
