"""The wiring that is derived from one traced forward, on classes that are wired in different ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from probe.wiring.anatomy import BlockAnatomy, derive
from probe.wiring.mixing import reach
from probe.wiring.norms import is_gated_norm, is_norm
from probe.wiring.sums import text

SMALL: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    "gemma2": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_hidden_layers": 2,
    },
    "granite": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "residual_multiplier": 0.22,
    },
    "gpt_neox": {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    "falcon": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2},
    "bloom": {"hidden_size": 32, "n_head": 4, "n_layer": 2},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "word_embed_proj_dim": 32,
    },
    "phi": {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    "olmo2": {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    "doge": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    },
    "mixtral": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "num_local_experts": 4,
    },
    "cohere": {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
}


def _anatomy(model_type: str, **changes: Any) -> list[BlockAnatomy]:
    return _derived(_model(model_type, **changes))


def _model(model_type: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](vocab_size=64, **{**SMALL[model_type], **changes})
    config.pad_token_id = 0
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def _derived(model: Any) -> list[BlockAnatomy]:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == 2]
    blocks = max(lists, key=lambda module: sum(parameter.numel() for parameter in module.parameters()))
    return derive(list(blocks), lambda: model(input_ids=torch.arange(3, 15)[None], use_cache=False))


class Largest(torch.nn.Module):
    """Two layers, of which a token takes the one with the larger score; or both, scaled by that score."""

    def __init__(self, width: int, chooses: bool) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        self.scores = torch.nn.Linear(width, 2, bias=False)
        self.chooses = chooses

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score, place = self.scores(x).max(dim=-1, keepdim=True)
        both = torch.nn.functional.silu(self.first(x)), self.second(x)
        return torch.where(place == 0, *both) if self.chooses else (both[0] + both[1]) * score


@pytest.mark.parametrize(("chooses", "kind"), [(True, "moe"), (False, "mlp")])
def test_a_largest_value_chooses_where_its_place_is_used(chooses: bool, kind: str) -> None:
    model = _model("llama")
    for block in model.model.layers:
        block.mlp = Largest(32, chooses)
    assert [term.kind for term in _derived(model)[0].terms] == ["attention", kind]


def _norms(anatomy: BlockAnatomy) -> list[tuple[str, str, str | None, str | None]]:
    return [(term.kind, term.hosts[0] if term.hosts else "", term.pre_norm, term.post_norm) for term in anatomy.terms]


WIRED = {
    "llama": (
        "sequential",
        [("attention", "self_attn", "input_layernorm", None), ("mlp", "mlp", "post_attention_layernorm", None)],
    ),
    "gemma2": (
        "sequential",
        [
            ("attention", "self_attn", "input_layernorm", "post_attention_layernorm"),
            ("mlp", "mlp", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        ],
    ),
    "gpt_neox": (
        "parallel",
        [("attention", "attention", "input_layernorm", None), ("mlp", "mlp", "post_attention_layernorm", None)],
    ),
    "falcon": (
        "parallel",
        [("attention", "self_attention", "input_layernorm", None), ("mlp", "mlp", "input_layernorm", None)],
    ),
    "cohere": (
        "parallel",
        [("attention", "self_attn", "input_layernorm", None), ("mlp", "mlp", "input_layernorm", None)],
    ),
    "phi": ("parallel", [("attention", "self_attn", "input_layernorm", None), ("mlp", "mlp", "input_layernorm", None)]),
    "bloom": (
        "sequential",
        [("attention", "self_attention", "input_layernorm", None), ("mlp", "mlp", "post_attention_layernorm", None)],
    ),
    "mpt": ("sequential", [("attention", "attn", "norm_1", None), ("mlp", "ffn", "norm_2", None)]),
    "opt": (
        "sequential",
        [("attention", "self_attn", "self_attn_layer_norm", None), ("mlp", "", "final_layer_norm", None)],
    ),
    "olmo2": (
        "sequential",
        [
            ("attention", "self_attn", None, "post_attention_layernorm"),
            ("mlp", "mlp", None, "post_feedforward_layernorm"),
        ],
    ),
    "mixtral": (
        "sequential",
        [("attention", "self_attn", "input_layernorm", None), ("moe", "mlp", "post_attention_layernorm", None)],
    ),
}


@pytest.mark.parametrize("model_type", WIRED)
def test_sublayers_and_norms_in_forward_order(model_type: str) -> None:
    topology, sublayers = WIRED[model_type]
    for anatomy in _anatomy(model_type):
        assert anatomy.topology == topology
        assert _norms(anatomy) == sublayers


def test_one_class_is_parallel_or_sequential_by_its_config() -> None:
    assert {anatomy.topology for anatomy in _anatomy("gpt_neox", use_parallel_residual=False)} == {"sequential"}
    assert {anatomy.topology for anatomy in _anatomy("falcon", parallel_attn=False)} == {"sequential"}


def test_a_module_that_adds_the_residual_itself_contributes_what_it_adds_inside() -> None:
    for anatomy in _anatomy("bloom"):
        assert [term.leaf for term in anatomy.terms] == ["self_attention.dense", "mlp.dense_4h_to_h"]


def test_a_multiplier_goes_by_the_attribute_that_holds_it() -> None:
    (first, _) = _anatomy("granite")
    assert (
        text(first.tree, "x", ["attention", "mlp"]) == "x + attention * residual_multiplier + mlp * residual_multiplier"
    )


def test_a_learned_scale_of_the_stream_stands_where_it_is_applied() -> None:
    (first, _) = _anatomy("doge")
    assert (
        text(first.tree, "x", ["attention", "mlp"])
        == "(x * input_residual + attention) * post_attention_residual + mlp"
    )


@pytest.mark.parametrize(
    ("module", "norm"),
    [
        (torch.nn.LayerNorm(8), True),
        (torch.nn.RMSNorm(8), True),
        (torch.nn.Linear(8, 8), False),
        (torch.nn.GELU(), False),
        (torch.nn.Identity(), False),
        (torch.nn.Softsign(), False),
    ],
)
def test_a_norm_is_told_by_forgetting_scale(module: torch.nn.Module, norm: bool) -> None:
    assert is_norm(module, 8) is norm


class Gated(torch.nn.Module):
    """What it normed, times a gate that an MLP makes of it; or the MLP's output alone."""

    def __init__(self, keeps_channels: bool) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(8)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.SiLU(), torch.nn.Linear(4, 8))
        self.keeps_channels = keeps_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return normed * self.mlp(normed).sigmoid() if self.keeps_channels else self.mlp(normed)


@pytest.mark.parametrize("keeps_channels", [True, False])
def test_a_norm_with_a_gate_keeps_its_channels_and_an_mlp_with_a_norm_does_not(keeps_channels: bool) -> None:
    module = Gated(keeps_channels)
    assert is_gated_norm(module, 8) is keeps_channels
    assert is_norm(module, 8) is False


class Shifted(torch.nn.Module):
    """Each position with the one some places before it."""

    def __init__(self, back: int) -> None:
        super().__init__()
        self.back = back

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.pad(x, (0, 0, self.back, 0))[:, : x.shape[1]]


@pytest.mark.parametrize("back", [0, 1, 3])
def test_how_far_back_a_module_looks_is_felt(back: int) -> None:
    assert reach(Shifted(back), (torch.randn(1, 12, 8),), {}) == back
