"""A note that was made wrong on purpose fails: a wrong claim, a swapped name, a wrong number."""

from __future__ import annotations

from typing import Any

import pytest

from probe.snippets.code import blocks
from probe.snippets.running import run

from .files import ROOT

MUTATIONS = {
    "a scalar forgotten": (
        "gemma4_text.md",
        "assert_close((x + attention + mlp + branch) * scalar, out)",
        "assert_close(x + attention + mlp + branch, out)",
    ),
    "a weight that stops one block early": (
        "gemma4_text.md",
        "weights = scalars.flip(0).cumprod(0).flip(0)",
        "weights = scalars[1:].flip(0).cumprod(0).flip(0)",
    ),
    "an edit said to reach through the private copy": (
        "gemma4_text.md",
        "    model.layers[lender].self_attn.k_proj.output[:] = 0",
        "    model.layers[lender].self_attn.attention_keys[:] = 0",
    ),
    "a wrong lender": ("gemma4_text.md", '"full_attention": 14}', '"full_attention": 9}'),
    "scores divided by the root of the width": (
        "gemma4_text.md",
        "(queries @ keys.mT)[..., allowed])",
        "(queries @ keys.mT * model.head_dim**-0.5)[..., allowed])",
    ),
    "the gain taken for one plus the weight": (
        "gemma4_text.md",
        "assert_close(unit * norm.weight, norm(last))",
        "assert_close(unit * (1 + norm.weight), norm(last))",
    ),
    "routed and dense outputs swapped between the mixture's norms": (
        "gemma4_text.md",
        "post_feedforward_layernorm_1(dense) + block.post_feedforward_layernorm_2(routed)\ntorch",
        "post_feedforward_layernorm_1(routed) + block.post_feedforward_layernorm_2(dense)\ntorch",
    ),
    "a pooled mean without its factor": ("gemma4_text.vision.md", " * model.vision.vision_hidden_size**0.5", ""),
    "an image said to be causal on sliding blocks": (
        "gemma4_text.vision.md",
        "assert full[0].triu(1).max() == 0",
        "assert sliding[0].triu(1).max() == 0",
    ),
    "an expert's output said to be scaled": (
        "llama4_text.md",
        "assert_close(scaled_inputs.view_as",
        "assert_close(scaled_outputs.view_as",
    ),
    "the copy taken for the live tensor": (
        "llama4_text.md",
        "native = host.shared_experts.output.save()\nassert",
        "native = host.shared_expert_output.save()\nassert",
    ),
    "a chunk taken for a sliding window": (
        "llama4_text.md",
        "(n[:, None] // size == n // size)",
        "(n[:, None] - n < size)",
    ),
    "a temperature one step late": (
        "llama4_text.md",
        "(torch.arange(queries.shape[2]) + 1.0)",
        "torch.arange(queries.shape[2])",
    ),
    "the class row said to be first": (
        "llama4_text.vision.md",
        "model.vision.tower_output[:, -1] = 1e3",
        "model.vision.tower_output[:, 0] = 1e3",
    ),
    "a head's columns taken for rows": (
        "llama.md",
        "attention.o_proj.weight[:, h * width : (h + 1) * width].T",
        "attention.o_proj.weight[h * width : (h + 1) * width]",
    ),
    "a query head given its neighbour's values": (
        "llama.md",
        "@ values[:, head // group], mixed",
        "@ values[:, head // group - 1], mixed",
    ),
    "embeddings said to be unscaled": ("gemma3_text.md", "table[ids] * model.hidden_size**0.5)", "table[ids])"),
    "a swapped name": (
        "gemma3_text.md",
        "    mlp = model.layers[1].mlp.mlp_output.save()\n    out",
        "    mlp = model.layers[1].mlp.mlp_activation.save()\n    out",
    ),
    "a projector said to receive pooled tokens": (
        "gemma3_text.vision.md",
        "assert torch.equal(fed, tower)",
        "assert fed.shape == features.shape",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_note_made_wrong_fails(name: str, right: str, wrong: str) -> None:
    path = ROOT / "families" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(right) == 1, "the mutation no longer fits the note"
    sound = [block.code for block in blocks(path)]
    namespace: dict[str, Any] = {}
    for index, block in enumerate(blocks(path, text.replace(right, wrong))):
        if block.code == sound[index]:
            if not block.subject.real:
                run(block, namespace)
            continue
        with pytest.raises(Exception) as caught:
            run(block, namespace)
        assert not isinstance(caught.value, (SyntaxError, NameError, ImportError)), "a broken block proves nothing"
        return
    raise AssertionError("no block changed")
