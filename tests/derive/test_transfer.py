"""A build of a published config takes over its twin's hosts, with the sizes that its own config says."""

from __future__ import annotations

from typing import Any

import pytest

from probe import checkpoints
from probe.checkpoints import Loaded, Target, load
from probe.checkpoints.published import published, stem
from probe.derive.likeness import signature
from probe.derive.transfer import transferred
from probe.errors import ProbeError
from probe.record import findings
from probe.standard import StandardizedTransformer

LLAMA = {
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "hidden_size // num_attention_heads",
    "qk_head_dim": "hidden_size // num_attention_heads",
    "intermediate_size": "intermediate_size",
}
OWN_HEAD_DIM = {"head_dim": "head_dim", "qk_head_dim": "head_dim"}
LATENT = {"head_dim": "v_head_dim", "qk_head_dim": "qk_nope_head_dim + qk_rope_head_dim"}
GPT = {
    "num_heads": "n_head",
    "num_kv_heads": "n_head",
    "head_dim": "n_embd // n_head",
    "qk_head_dim": "n_embd // n_head",
    "intermediate_size": "4 * n_embd",
}
ROUTED = {"num_experts": "n_routed_experts", "top_k": "num_experts_per_tok"}

CONFIGS: dict[str, dict[str, str]] = {
    "allenai/OLMo-2-0325-32B": LLAMA,
    "bigcode/starcoder2-3b": LLAMA,
    "bigscience/bloom-7b1": GPT | {name: said.replace("n_embd", "hidden_size") for name, said in GPT.items()},
    "deepseek-ai/DeepSeek-V3": LLAMA | LATENT | ROUTED,
    "EleutherAI/gpt-neo-125m": LLAMA
    | {
        "num_heads": "num_heads",
        "num_kv_heads": "num_heads",
        "head_dim": "hidden_size // num_heads",
        "qk_head_dim": "hidden_size // num_heads",
        "intermediate_size": "4 * hidden_size",
    },
    "google/gemma-2-9b": LLAMA | OWN_HEAD_DIM,
    "ibm-granite/granite-3.3-8b-instruct": LLAMA,
    "microsoft/phi-4": LLAMA,
    "mistralai/Mixtral-8x22B-v0.1": LLAMA
    | {"num_experts": "num_local_experts", "top_k": "num_experts_per_tok", "intermediate_size": "None"},
    "openai-community/gpt2-xl": GPT,
    "openai/gpt-oss-120b": LLAMA
    | OWN_HEAD_DIM
    | {"num_experts": "num_local_experts", "top_k": "experts_per_token", "intermediate_size": "None"},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": LLAMA
    | OWN_HEAD_DIM
    | {
        "num_experts": "num_experts",
        "top_k": "num_experts_per_tok",
        "intermediate_size": "shared_expert_intermediate_size",
    },
    "Qwen/Qwen3-VL-8B-Instruct": LLAMA | OWN_HEAD_DIM,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": LLAMA
    | OWN_HEAD_DIM
    | ROUTED
    | {"intermediate_size": "moe_shared_expert_intermediate_size"},
    "stabilityai/stablelm-3b-4e1t": LLAMA,
    "tiiuae/falcon-7b": LLAMA
    | {"num_kv_heads": "1 if multi_query else num_attention_heads", "intermediate_size": "4 * hidden_size"},
    "XiaomiMiMo/MiMo-V2-Flash": LLAMA | {"head_dim": "v_head_dim", "qk_head_dim": "head_dim"} | ROUTED,
    "zai-org/GLM-5": LLAMA | LATENT | ROUTED,
}
"""Hub id -> size -> what the published config says of it. An expert's own width is no MLP's, and a mixture without a
dense or shared MLP has none."""


def _built(hub_id: str) -> StandardizedTransformer:
    target = next(
        target
        for family in _families(hub_id)
        for target in checkpoints.targets(family)
        if target.id == hub_id and target.kind == "config"
    )
    return StandardizedTransformer(load(target))


def _families(hub_id: str) -> list[str]:
    from probe import registry

    return [family.name for family in registry.families() if hub_id in family.checkpoints]


def _says(hub_id: str, said: str) -> Any:
    name = stem(hub_id)
    assert name is not None
    config = published(name).config
    return eval(said, {}, config.get("text_config", config))


def _blocks(model: StandardizedTransformer) -> list[dict[tuple[str, str], tuple[str, str]]]:
    """What each block's hosts serve, and where."""
    found: list[dict[tuple[str, str], tuple[str, str]]] = [{} for _ in model.layers]
    for label, block, host in model.hosts():
        for name, value in host.standard_values().items() if block is not None else ():
            found[block][label, name] = (str(value.location), str(value.axes))
    return found


@pytest.mark.parametrize("hub_id", CONFIGS)
def test_a_build_has_its_twins_hosts_and_its_own_sizes(hub_id: str) -> None:
    model = _built(hub_id)
    twins = [
        findings.twin(target.family, target.id)
        for target in checkpoints.targets(model.loaded.target.family)
        if target.kind == "tiny"
    ]
    wanted = {signature(layer._module) for layer in model.layers}
    twin = next(twin for twin in twins if wanted <= {signature(layer._module) for layer in twin.layers})
    like = {signature(layer._module): served for layer, served in zip(twin.layers, _blocks(twin), strict=True)}
    for layer, served in zip(model.layers, _blocks(model), strict=True):
        assert served and served == like[signature(layer._module)]
    found = {name: getattr(model, name) for name in LLAMA}
    for name in ("num_experts", "top_k"):
        routed = {host.measured[name] for _, _, host in model.hosts() if name in getattr(host, "measured", {})}
        found |= {name: routed.pop()} if routed else {}
        assert not routed
    assert found == {name: _says(hub_id, said) for name, said in CONFIGS[hub_id].items()}


def test_a_block_like_none_of_the_twins_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin whose projections have biases says nothing about blocks whose projections have none."""
    loaded: Loaded = load(Target("stablelm", "stabilityai/stablelm-3b-4e1t", "config"))
    transferred(loaded)
    only = [target for target in checkpoints.targets("stablelm") if target.id == "tiny"]
    monkeypatch.setattr("probe.derive.transfer.targets", lambda family: only)
    with pytest.raises(
        ProbeError, match=r"^No tiny twin of stablelm .* block like each of those of stabilityai/.*: add"
    ):
        transferred(loaded)
