"""Tiny random models of families whose layers remember in different ways."""

from __future__ import annotations

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen3Config,
)

from chat.engine.loading import LoadedModel
from chat.types import GenerationParams, ModelInfo
from tests.engine.models import byte_tokenizer, tiny_llama

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
_CONFIGS = {
    "gpt2": lambda vocab: GPT2Config(vocab_size=vocab, n_embd=32, n_layer=2, n_head=4),
    "qwen": lambda vocab: Qwen3Config(vocab_size=vocab, head_dim=8, **_SIZES),
    "experts": lambda vocab: MixtralConfig(vocab_size=vocab, num_local_experts=4, **_SIZES),
    "mistral": lambda vocab: MistralConfig(vocab_size=vocab, sliding_window=16, **_SIZES),
    "gemma": lambda vocab: Gemma3TextConfig(vocab_size=vocab, sliding_window=16, head_dim=8, **_SIZES),
    "hybrid": lambda vocab: Lfm2Config(vocab_size=vocab, full_attn_idxs=[1, 3], **_SIZES),
    "recurrent": lambda vocab: MambaConfig(vocab_size=vocab, hidden_size=32, num_hidden_layers=2),
}

CAN_BATCH = ["llama", "gpt2", "qwen", "experts", "mistral", "gemma"]
FAMILIES = [*CAN_BATCH, "hybrid", "recurrent"]


def load_family(family: str) -> LoadedModel:
    """Return a model of a family, in float32, that never ends a reply by itself."""
    if family == "llama":
        model, tokenizer = tiny_llama(max_position_embeddings=1024)
    else:
        tokenizer = byte_tokenizer()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(_CONFIGS[family](len(tokenizer))).eval()
        # Larger weights, so that the context decides what comes next.
        for parameter in model.parameters():
            parameter.data.mul_(3 if parameter.dim() > 1 else 1)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.eos_token_id
    model.generation_config.suppress_tokens = [tokenizer.eos_token_id]
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 1024, GenerationParams()))
