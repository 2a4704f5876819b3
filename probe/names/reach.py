"""What other tools load: read in their published source, in the versions that :data:`probe.names.TOOLS` names.

TransformerLens has an adapter for each architecture it loads, under the name of its class in transformers. nnterp has
none: it renames modules, and reaches those that go by a name it knows.
"""

from __future__ import annotations

ADAPTERS = frozenset(
    """
AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM AudioFlamingo3ForConditionalGeneration BaiChuanForCausalLM
BaichuanForCausalLM BambaForCausalLM BartForConditionalGeneration BertLMHeadModel BitNetForCausalLM
BlenderbotForConditionalGeneration BloomForCausalLM CodeGenForCausalLM Cohere2ForCausalLM CohereForCausalLM
DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV4ForCausalLM Emu3ForConditionalGeneration Ernie4_5ForCausalLM
Ernie4_5_MoeForCausalLM Exaone4ForCausalLM ExaoneForCausalLM FalconForCausalLM FalconH1ForCausalLM
FalconMambaForCausalLM FlexOlmoForCausalLM Florence2ForConditionalGeneration GPT2LMHeadModel GPTBigCodeForCausalLM
GPTJForCausalLM GPTNeoForCausalLM GPTNeoXForCausalLM Gemma1ForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
Gemma4UnifiedForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
Glm4vForConditionalGeneration GlmAsrForConditionalGeneration GlmForCausalLM GlmMoeDsaForCausalLM GptOssForCausalLM
GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM HrmTextForCausalLM HunYuanDenseV1ForCausalLM
HyenaDNAForCausalLM Idefics3ForConditionalGeneration InternLM2ForCausalLM Jais2ForCausalLM JambaForCausalLM
JetMoEForCausalLM JetMoeForCausalLM LEDForConditionalGeneration LagunaForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM
Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM LlavaForConditionalGeneration
LlavaNextForConditionalGeneration LlavaOnevisionForConditionalGeneration LongT5ForConditionalGeneration
M2M100ForConditionalGeneration MBartForConditionalGeneration MPTForCausalLM MT5ForConditionalGeneration
Mamba2ForCausalLM MambaForCausalLM MinGPTForCausalLM MiniMaxM2ForCausalLM Ministral3ForCausalLM
Mistral3ForConditionalGeneration MistralForCausalLM MixtralForCausalLM ModernBertDecoderForCausalLM MptForCausalLM
MuseGlimmerForConditionalGeneration MusicFlamingoForConditionalGeneration NanoChatForCausalLM NanoGPTForCausalLM
NeelSoluOldForCausalLM NemotronForCausalLM NemotronHForCausalLM NeoForCausalLM NeoXForCausalLM OPTForCausalLM
Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM OpenAIGPTLMHeadModel
OpenELMForCausalLM OuroForCausalLM PegasusForConditionalGeneration Phi3ForCausalLM PhiForCausalLM PhiMoEForCausalLM
Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2_5_VLForConditionalGeneration
Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3VLForConditionalGeneration
Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM
Qwen3_5MoeForConditionalGeneration QwenForCausalLM RWKV7ForCausalLM RavenForCausalLM RecurrentGemmaForCausalLM
RwkvForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM StableLmForCausalLM Starcoder2ForCausalLM
SwitchTransformersForConditionalGeneration T5ForConditionalGeneration T5Gemma2ForConditionalGeneration
T5GemmaForConditionalGeneration T5WithLMHeadModel VaultGemmaForCausalLM XGLMForCausalLM YoutuForCausalLM
Zamba2ForCausalLM
""".split()
)
"""Classes of language models in `transformer_lens.factories.architecture_adapter_factory.SUPPORTED_ARCHITECTURES`."""

MODELS = frozenset({"model", "transformer", "gpt_neox", "decoder", "language_model"})
"""Modules that nnterp goes through on its way to the blocks (`MODEL_NAMES`)."""

STACKS = frozenset({"layers", "h", "blocks"})
"""Names of the list of blocks that nnterp knows (`LAYER_NAMES`)."""

CHILDREN = {
    "self_attn": frozenset({"self_attn", "attn", "self_attention", "attention", "norm_attn_norm"}),
    "mlp": frozenset({"mlp", "block_sparse_moe", "ffn"}),
}
"""Names of a block's modules that nnterp knows, by its own name for them (`ATTENTION_NAMES`, `MLP_NAMES`)."""


def stacked(path: str) -> bool:
    """Whether nnterp finds the blocks: ``path`` is a block's, such as ``model.layers.{i}``."""
    *models, stack, _ = path.split(".") if path.count(".") else ("", "", "")
    return stack in STACKS and MODELS.issuperset(models)
