"""How stacked experts are stored: planted mixtures of every order, and families against their own weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from probe.experiments.mlp.expert_matrices import Mixture
from probe.experiments.mlp.expert_weights import Order, examine, expert_facts

RunOf = Callable[..., Any]


class Planted(nn.Module):
    """Three experts, the second of which takes every token; the neurons are as wide as half of the stream or as all."""

    def __init__(self, order: Order, input_first: bool, neurons: int, slope: float, offset: int) -> None:
        super().__init__()
        self.order, self.input_first, self.slope, self.offset = order, input_first, slope, offset
        generator = torch.Generator().manual_seed(3)
        into, out = (
            torch.randn(3, 16, 2 * neurons, generator=generator),
            torch.randn(3, neurons, 16, generator=generator),
        )
        self.up = nn.Parameter(into if input_first else into.mT.contiguous())
        self.down = nn.Parameter(out if input_first else out.mT.contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up, down = (stack[1] if self.input_first else stack[1].T for stack in (self.up, self.down))
        made = x @ up
        first, second = made.chunk(2, -1) if self.order.startswith("halves") else (made[..., ::2], made[..., 1::2])
        gate, rest = (
            (first, second) if self.order in ("halves, gates first", "gates on even places") else (second, first)
        )
        return 0.3 * (gate * torch.sigmoid(self.slope * gate) * (rest + self.offset)) @ down


@pytest.mark.parametrize("neurons", [8, 16])  # with 8 the one matrix is square, with 16 the other
@pytest.mark.parametrize("input_first", [True, False])
@pytest.mark.parametrize(
    "order", ["halves, gates first", "halves, gates last", "gates on even places", "gates on odd places"]
)
def test_a_planted_order_is_found(order: Order, input_first: bool, neurons: int) -> None:
    token = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0))
    found = examine(Mixture(Planted(order, input_first, neurons, 1.3, 1), token))
    assert found is not None and found.order == order
    assert [(m.name, m.side, m.input_first) for m in found.matrices] == [
        ("up", "reads", input_first),
        ("down", "writes", input_first),
    ]
    assert (found.slope, found.offset) == (1.3, 1)


class Apart(nn.Module):
    """Two experts, of which the second takes every token, with gates in a stack of their own, or none."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.gate = gate
        self.one, self.two, self.down = (nn.Parameter(torch.randn(2, 16, 16, generator=generator)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = {"one": x @ self.one[1], "two": x @ self.two[1]}
        gate, up = (given.pop(self.gate) if self.gate else None), [*given.values()]
        return (up[0] * up[1] if gate is None else gate * torch.sigmoid(gate) * (up[0] + 1)) @ self.down[1]


@pytest.mark.parametrize(("gate", "found"), [("one", ("one", "two")), ("two", ("two", "one")), ("", None)])
def test_gates_in_a_stack_of_their_own_are_found(gate: str, found: tuple[str, str] | None) -> None:
    token = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0))
    seen = examine(Mixture(Apart(gate), token))
    assert seen is not None and seen.gates == found and seen.order is None
    assert (seen.slope, seen.offset) == ((1.0, 1) if found else (None, None))


def test_a_scaled_token_leaves_the_gates_slope_open() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = Planted("halves, gates first", True, 8, 1.0, 0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.experts(0.5 * x)  # type: ignore[no-any-return]

    found = examine(Mixture(Scaled(), torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0))))
    assert found is not None and found.order == "halves, gates first" and found.slope is None


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("gpt_oss", "is input × output (`x @ W`). In what `experts.gate_up_proj` gives, gates and what they multiply "
                    "alternate, a gate first. A neuron is `gate * sigmoid(1.702 * gate) * (up + 1)`"),
        ("mixtral", "is output × input, as a linear layer's weight (`x @ W.T`). In what `experts.gate_up_proj` gives, "
                    "the first half are the gates"),
        ("llama4_text", "is input × output (`x @ W`). In what `experts.gate_up_proj` gives, the first half are the "
                        "gates"),
        ("nemotron_h", "`model.layers.{i}.mixer.experts.down_proj` is output × input"),
        ("dbrx", "`transformer.blocks.{i}.ffn.experts.mlp.w2` is input × output (`x @ W`). An expert's part of "
                 "`transformer.blocks.{i}.ffn.experts.mlp.w1` and"),
        ("dbrx", "What `experts.mlp.w1` gives are the gates, and what `experts.mlp.v1` gives they multiply. A neuron "
                 "is `gate * sigmoid(gate) * up`"),
    ],
)  # fmt: skip
def test_how_families_store_their_experts_is_told(run_of: RunOf, family: str, says: str) -> None:
    [fact] = expert_facts(run_of(family))
    assert says in fact.statement
    assert ("gate" in fact.statement.replace("gate_up", "")) == (family != "nemotron_h")
    if family == "gpt_oss":
        order = {"order": "gates on even places", "slope": 1.702, "offset": 1}
        stem = "model.layers.{i}.mlp.experts"
        assert (
            fact.measured == {"input_first": [f"{stem}.gate_up_proj", f"{stem}.down_proj"], "output_first": []} | order
        )


def test_what_is_told_of_gpt_oss_makes_its_experts_output(run_of: RunOf) -> None:
    run = run_of("gpt_oss")
    experts = run.text.envoys[0]._module.mlp.experts
    x = torch.randn(1, experts.gate_up_proj.shape[1], generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        made = experts(x, torch.tensor([[2]]), torch.ones(1, 1))
        both = x @ experts.gate_up_proj[2] + experts.gate_up_proj_bias[2]
        gate, up = both[:, ::2], both[:, 1::2]
        told = (gate * torch.sigmoid(1.702 * gate) * (up + 1)) @ experts.down_proj[2] + experts.down_proj_bias[2]
    assert torch.allclose(made, told, atol=1e-5)


def test_a_dense_model_has_no_such_fact(run_of: RunOf) -> None:
    assert expert_facts(run_of("llama")) == []
