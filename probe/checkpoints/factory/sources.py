"""Which config each decoder's twins are shrunk from, and which model types are decoders at all."""

from __future__ import annotations

from transformers.models.auto import modeling_auto

from probe import registry
from probe.errors import ProbeError

PUBLISHED: dict[str, dict[str, str | None]] = {
    "bloom": {"tiny": "bigscience__bloom-560m"},
    "dbrx": {"tiny": "databricks__dbrx-base"},
    "deepseek_v2": {"tiny": "deepseek-ai__DeepSeek-V2-Lite"},
    "deepseek_v3": {"tiny": "deepseek-ai__DeepSeek-V3"},
    "deepseek_v32": {"tiny": "deepseek-ai__DeepSeek-V3.2"},
    "deepseek_v4": {"tiny": "deepseek-ai__DeepSeek-V4-Flash"},
    "doge": {"tiny": None, "tiny-moe": None},
    "ernie4_5": {"tiny": "baidu__ERNIE-4.5-0.3B-PT"},
    "exaone": {"tiny": "LGAI-EXAONE__EXAONE-3.5-7.8B-Instruct"},
    "exaone4": {"tiny": "LGAI-EXAONE__EXAONE-4.0-32B"},
    "falcon": {"tiny": "tiiuae__falcon-7b", "tiny-grouped": "tiiuae__falcon-40b", "tiny-alibi": None},
    "falcon_mamba": {"tiny": "tiiuae__falcon-mamba-7b"},
    "gemma": {"tiny": "google__gemma-2b-it"},
    "gemma2": {"tiny": "google__gemma-2-2b"},
    "gemma3_text": {"tiny": "google__gemma-3-1b-it"},
    "gemma4_text": {"tiny": "google__gemma-4-E2B-it"},
    "glm4_moe": {"tiny": "zai-org__GLM-4.5"},
    "glm_moe_dsa": {"tiny": "zai-org__GLM-5", "tiny-shared-index": "zai-org__GLM-5.2"},
    "gpt2": {"tiny": "openai-community__gpt2"},
    "gpt_bigcode": {"tiny": "bigcode__gpt_bigcode-santacoder"},
    "gpt_neo": {"tiny": "EleutherAI__gpt-neo-125m"},
    "gpt_neox": {"tiny": "EleutherAI__pythia-1b", "tiny-sequential": "EleutherAI__pythia-1b"},
    "gpt_oss": {"tiny": "openai__gpt-oss-20b"},
    "gptj": {"tiny": "EleutherAI__gpt-j-6b"},
    "granite": {"tiny": "ibm-granite__granite-3.3-8b-instruct"},
    "jamba": {"tiny": "ai21labs__AI21-Jamba-1.5-Mini"},
    "kimi_k2": {"tiny": "moonshotai__Kimi-K2.5"},
    "lfm2": {"tiny": "LiquidAI__LFM2-1.2B"},
    "llama": {"tiny": "meta-llama__Meta-Llama-3.1-8B"},
    "llama4_text": {"tiny": "meta-llama__Llama-4-Scout-17B-16E-Instruct"},
    "mamba": {"tiny": "state-spaces__mamba-130m-hf"},
    "mimo_v2_flash": {"tiny": "XiaomiMiMo__MiMo-V2-Flash"},
    "minicpm3": {"tiny": "openbmb__MiniCPM3-4B"},
    "minimax_m2": {"tiny": "MiniMaxAI__MiniMax-M2.5"},
    "ministral3": {"tiny": "mistralai__Devstral-2-123B-Instruct-2512"},
    "mistral": {"tiny": "mistralai__Mistral-7B-v0.1"},
    "mixtral": {"tiny": "mistralai__Mixtral-8x7B-v0.1"},
    "mpt": {"tiny": "mosaicml__mpt-7b"},
    "nemotron_h": {"tiny": "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "tiny-dense": None},
    "olmo2": {"tiny": "allenai__OLMo-2-1124-7B"},
    "olmoe": {"tiny": "allenai__OLMoE-1B-7B-0125-Instruct"},
    "opt": {"tiny": "facebook__opt-125m", "tiny-post-norm": "facebook__opt-350m"},
    "phi": {"tiny": "microsoft__phi-2"},
    "phi3": {"tiny": "microsoft__Phi-3-mini-4k-instruct", "tiny-long": "microsoft__Phi-3-mini-128k-instruct"},
    "phimoe": {"tiny": "microsoft__Phi-3.5-MoE-instruct"},
    "qwen2": {"tiny": "Qwen__Qwen2.5-0.5B-Instruct"},
    "qwen2_5_vl_text": {"tiny": "Qwen__Qwen2.5-VL-3B-Instruct"},
    "qwen2_moe": {"tiny": "Qwen__Qwen1.5-MoE-A2.7B"},
    "qwen2_vl_text": {"tiny": "Qwen__Qwen2-VL-2B-Instruct"},
    "qwen3": {"tiny": "Qwen__Qwen3-0.6B"},
    "qwen3_5_moe_text": {"tiny": "Qwen__Qwen3.5-35B-A3B"},
    "qwen3_5_text": {"tiny": "Qwen__Qwen3.5-0.8B"},
    "qwen3_moe": {"tiny": "Qwen__Qwen3-30B-A3B"},
    "qwen3_next": {"tiny": "Qwen__Qwen3-Next-80B-A3B-Instruct"},
    "qwen3_vl_moe_text": {"tiny": "Qwen__Qwen3-VL-30B-A3B-Instruct"},
    "qwen3_vl_text": {"tiny": "Qwen__Qwen3-VL-2B-Instruct"},
    "seed_oss": {"tiny": "ByteDance-Seed__Seed-OSS-36B-Instruct"},
    "smollm3": {"tiny": "HuggingFaceTB__SmolLM3-3B"},
    "stablelm": {"tiny": "stabilityai__stablelm-2-zephyr-1_6b", "tiny-parallel": "stabilityai__stablelm-3b-4e1t"},
    "starcoder2": {"tiny": "bigcode__starcoder2-3b"},
    "zamba2": {"tiny": "Zyphra__Zamba2-7B"},
}
"""model_type -> twin -> the published config it is shrunk from. Several twins where checkpoints differ in wiring; None
where one differs from the class's defaults by a line in `adjust`."""

WRAPPED = {
    "kimi_k2": "kimi_k25",
    "qwen2_5_vl_text": "qwen2_5_vl",
    "qwen2_vl_text": "qwen2_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "qwen3_vl_text": "qwen3_vl",
}
"""Text models that transformers builds inside a vision-language wrapper only."""


def twins(model_type: str) -> dict[str, str | None]:
    """The twins of a decoder: name -> file of the published config under ``families/configs``, None for the class's
    defaults."""
    return dict(PUBLISHED.get(model_type, {"tiny": None}))


def twin(model_type: str, name: str) -> str | None:
    """The published config of one twin. Raises: ProbeError if there is no such decoder, or no such twin of it."""
    if model_type not in decoders():
        near = registry.nearest(model_type, decoders())
        raise ProbeError(f"This transformers has no text decoder {model_type!r}{near}: name another.")
    known = twins(model_type)
    if name not in known:
        raise ProbeError(f"{model_type} has no twin named {name!r}; it has {', '.join(known)}.")
    return known[name]


def root_type(model_type: str) -> str:
    """model_type of the config that is built: the wrapper's where the text model has no class of its own."""
    return WRAPPED.get(model_type, model_type)


OTHER_TASKS = (
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES,
)
"""What transformers maps to one of these beside causal language modeling is no decoder of text alone."""

NO_DECODER = {
    "bert-generation": "an encoder that can be run causally",
    "gemma4_assistant": "drafts for another model, whose states it reads",
    "gemma4_unified_assistant": "drafts for another model, whose states it reads",
    "moshi": "hears and speaks",
    "trocr": "decodes what another model's encoder saw",
    "xlnet": "attends by permutation, not causally",
}
"""Classes mapped to causal language modeling alone that are no decoders of text either."""


def decoders() -> list[str]:
    """Model types of every text decoder of the installed transformers, sorted; reads names only.

    Those with a causal model of their own, and those that come in a wrapper only. A new one of a newer transformers
    appears by itself.
    """
    others = {*NO_DECODER}.union(*OTHER_TASKS)
    return sorted({*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *WRAPPED} - others)
