"""What a half-precision load computes in which dtype: facts against the same model cast by PyTorch alone."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.calls.half_facts import half_facts
from probe.experiments.calls.halves import half

RunOf = Callable[..., Any]


def told(run: Any) -> dict[str, str]:
    return {fact.name: fact.statement for fact in half_facts(run)}


def cast_by_pytorch(run: Any) -> Any:
    module = run.model._module
    made = type(module)(copy.deepcopy(module.config))
    made.load_state_dict(module.state_dict())
    return made.to(torch.bfloat16).eval()


class Rounded(nn.Module):
    """RMSNorm that computes in its input's dtype from the first step on."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x / (x * x).mean(-1, keepdim=True).sqrt())


def rounded_norms(module: Any) -> None:
    for block in module.model.layers:
        block.input_layernorm = Rounded(block.input_layernorm.weight)
        block.post_attention_layernorm = Rounded(block.post_attention_layernorm.weight)


def float_logits(module: Any) -> None:
    module.lm_head.register_forward_hook(lambda _, __, out: out.float())


@pytest.mark.parametrize("family", ["llama", "gemma2", "mamba", "deepseek_v3", "xlstm", "dots3_note_text"])
def test_dtypes_are_those_of_the_model_cast_by_pytorch(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    cast = cast_by_pytorch(run)
    wide: set[str] = set()

    def note(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            given = out if isinstance(out, tuple) else (out,)
            if any(isinstance(tensor, torch.Tensor) and tensor.dtype is torch.float32 for tensor in given):
                wide.add(re.sub(r"\.\d+(?=\.|$)", ".{i}", path))

        return hook

    for path, module in cast.named_modules():
        module.register_forward_hook(note(path))
    with torch.no_grad():
        logits = cast(input_ids=half(run).ids, use_cache=False).logits
    said = told(run)["half_dtypes"]
    assert f"logits are {str(logits.dtype).removeprefix('torch.')}" in said
    assert set(re.findall(r"`([^`]+)`", said)) == wide - {""}


@pytest.mark.parametrize(
    ("family", "change", "says"),
    [
        ("llama", None, "round the quotient to bfloat16 and multiply that by the weight"),
        ("gemma2", None, "their gain included, and round once at the end"),
        ("gpt2", None, "their gain included, and round once at the end"),
        ("llama", rounded_norms, "round elsewhere than once, behind the gain or before it"),
    ],
)
def test_where_norms_round_is_told(run_of: RunOf, family: str, change: Any, says: str) -> None:
    assert says in told(run_of(family, change=change))["norm_rounding"]


def test_logits_in_float32_are_told(run_of: RunOf) -> None:
    said = told(run_of("llama", change=float_logits))["half_dtypes"]
    assert said == "In a bfloat16 load logits are float32; float32 comes from `lm_head` alone."


def called_before_in_float32(module: Any) -> None:
    """Each call of the model calls its rotary module with a float32 stream first."""
    plain = module.model.embed_tokens

    def first(_: nn.Module, __: Any, stream: torch.Tensor) -> None:
        module.model.rotary_emb(stream.float(), position_ids=torch.arange(stream.shape[1])[None])

    plain.register_forward_hook(first)


def test_a_module_that_is_called_several_times_is_told_by_the_widest_of_its_calls(run_of: RunOf) -> None:
    assert "`model.rotary_emb`" in told(run_of("llama", change=called_before_in_float32))["half_dtypes"]
    assert "`model.rotary_emb`" not in told(run_of("llama"))["half_dtypes"]


def test_a_factor_of_the_embeddings_that_bfloat16_cannot_hold_is_told(run_of: RunOf) -> None:
    run = run_of("gemma")
    cast = cast_by_pytorch(run)
    ids = half(run).ids
    entered: list[torch.Tensor] = []
    cast.model.layers[0].register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    with torch.no_grad():
        cast(input_ids=ids, use_cache=False)
    rows = cast.model.embed_tokens.weight[ids]
    number = float(re.search(r"multiplied by ([\d.]+),", told(run)["half_embedding_factor"])[1])  # type: ignore[index]
    assert torch.equal(rows * torch.tensor(number).to(torch.bfloat16), entered[0])
    assert number == float(torch.tensor(number).to(torch.bfloat16)) != run.model.hidden_size**0.5
    assert "half_embedding_factor" not in told(run_of("llama"))


def test_a_factor_that_is_rounded_in_float32_too_is_told(run_of: RunOf) -> None:
    run = run_of("recurrent_gemma")
    said = told(run)["half_embedding_factor"]
    assert "multiplied by 9.8125, what bfloat16 makes of √96 = 9.798, in a float32 load too" in said
    assert float(run.model._module.model.normalizer) == 9.8125
