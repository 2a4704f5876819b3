"""The way from the last block to the logits, where arithmetic stands before the final norm."""

from __future__ import annotations

import pytest
import torch

from probe.checkpoints import Target, load
from probe.measure.collect import all_identities
from probe.measure.run import measure
from probe.standard import StandardizedTransformer
from tests.derive.summaries import standardized


def test_a_stream_that_is_halved_between_blocks_is_halved_before_the_norm_too() -> None:
    """RWKV halves its stream after every third block of the twin, block 5 among them, which is the last."""
    model = standardized("rwkv", "tiny")
    run = measure(model)
    taken: list[torch.Tensor] = []
    hook = model._module.rwkv.ln_out.register_forward_pre_hook(lambda module, args: taken.append(args[0]))
    with torch.no_grad():
        model._module(**run.inputs)
    hook.remove()
    last = run.text.get(5, "", "layer_output")
    assert last is not None and torch.equal(taken[0], last / 2)
    assert model.readout.leaving == 0.5
    text, roots = all_identities(run)
    held = {found.name: found for found in (*text, *roots)}
    assert held["readout"].holds and held["final norm"].expression.startswith("norm(0.5 * layers[-1].layer_output)")
    for entering, leaving in ((2, 1.0), (3, 0.5), (4, 1.0)):
        given, gave = run.text.get(entering, "", "layer_input"), run.text.get(entering - 1, "", "layer_output")
        assert given is not None and gave is not None and torch.equal(given, leaving * gave)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("gpt2", "The residual stream after the final norm"),
        ("gemma3n_text", "The residual stream after the final norm"),  # a norm of the mean of several streams
        ("openai-gpt", "What lm_head reads: the last block's output, with no norm between"),
        ("qwen4_exp_text", "What lm_head reads"),  # the streams are mixed there
    ],
)
def test_the_words_for_what_the_head_reads_are_those_of_what_was_found(family: str, says: str) -> None:
    described = str(standardized(family, "tiny").standard_values()["final_norm_output"].description)
    assert described == says or (described.startswith(says) and "norm" in says)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_softcap_of_the_logits_is_found_in_every_dtype(dtype: str) -> None:
    model = StandardizedTransformer(load(Target("gemma2", "tiny", "tiny"), attn="eager", dtype=dtype))
    assert model.readout.cap == model._module.config.final_logit_softcapping
