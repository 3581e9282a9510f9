"""What a model says of how to generate with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import (
    BloomConfig,
    GemmaConfig,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    MptConfig,
    PreTrainedConfig,
)

from chat.engine.generation import USUAL_WINDOW, context_window, end_ids, read_defaults, settle_generation
from chat.types import GenerationParams
from tests.engine.models import END_OF_TEXT, TURN_END, TURN_START, byte_tokenizer, tiny_llama


@pytest.mark.parametrize(
    ("config", "limit", "window"),
    [
        (LlamaConfig(max_position_embeddings=4096), 10**30, 4096),
        (LlamaConfig(max_position_embeddings=4096), 2048, 2048),
        (LlamaConfig(max_position_embeddings=4096), 8192, 4096),
        (LlamaConfig(max_position_embeddings=4096), 20, 4096),
        (GPT2Config(n_positions=1024), 10**30, 1024),
        (MptConfig(max_seq_len=2000), 10**30, 2000),
        (BloomConfig(), 4000, 4000),
        (BloomConfig(), 10**30, USUAL_WINDOW),
    ],
)
def test_the_window_is_the_models_or_its_tokenizers_if_that_is_less(
    config: PreTrainedConfig, limit: int, window: int
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = limit
    assert context_window(config, tokenizer) == window


def test_the_window_of_a_model_for_text_and_pictures_is_its_texts() -> None:
    config = PreTrainedConfig()
    config.get_text_config = lambda: GemmaConfig(max_position_embeddings=777)
    assert context_window(config, byte_tokenizer()) == 777


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({}, {"temperature": 0.7, "top_p": 0.95}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"temperature": 1, "top_k": 20}, {"temperature": 1.0, "top_p": 0.95, "top_k": 20}),
        ({"do_sample": False, "repetition_penalty": 1.1}, {"temperature": 0, "top_p": 0.95, "repetition_penalty": 1.1}),
        ({"temperature": 0.6, "top_k": -1, "top_p": 7.0}, {"temperature": 0.6, "top_p": 0.95}),
        ({"stop_strings": "END"}, {"temperature": 0.7, "top_p": 0.95, "stop": ("END",)}),
        ({"stop_strings": ["a", "b"]}, {"temperature": 0.7, "top_p": 0.95, "stop": ("a", "b")}),
    ],
)
def test_defaults_are_the_models_own_over_the_usual_ones(own: dict[str, object], wanted: dict[str, object]) -> None:
    assert read_defaults(GenerationConfig(**own)) == GenerationParams(**wanted)


@pytest.mark.parametrize(
    ("own", "ends"), [(None, [END_OF_TEXT]), (TURN_START, [TURN_START, END_OF_TEXT]), (END_OF_TEXT, [END_OF_TEXT])]
)
def test_replies_end_at_every_end_that_model_and_tokenizer_name(own: str | None, ends: list[str]) -> None:
    """S16."""
    tokenizer = byte_tokenizer()
    config = GenerationConfig(eos_token_id=own and tokenizer.convert_tokens_to_ids(own))
    assert end_ids(config, tokenizer) == tokenizer.convert_tokens_to_ids(ends)


def test_a_gguf_file_that_names_only_the_end_of_a_turn_ends_at_the_end_of_a_text_too() -> None:
    """S16."""
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = TURN_END
    ids = end_ids(GenerationConfig(eos_token_id=tokenizer.eos_token_id), tokenizer)
    assert ids == tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])


@pytest.mark.parametrize(("own", "pad"), [(None, 0), (-1, 0), (5, 5)])
def test_a_pad_token_is_always_set(own: int | None, pad: int) -> None:
    """C10."""
    model, tokenizer = tiny_llama()
    model.generation_config.pad_token_id = own
    settle_generation(model, tokenizer)
    assert model.generation_config.pad_token_id == pad


def test_a_config_saved_without_cache_is_not_slow() -> None:
    """A fine-tuned model's files often say use_cache false, as its training did."""
    model, tokenizer = tiny_llama()
    model.generation_config.use_cache = False
    settle_generation(model, tokenizer)
    assert model.generation_config.use_cache


def test_which_tokens_a_model_may_write_is_kept(tmp_path: Path) -> None:
    model, tokenizer = tiny_llama()
    model.generation_config.update(suppress_tokens=[7], bad_words_ids=[[8]], decoder_start_token_id=3, top_k=9)
    settle_generation(model, tokenizer)
    kept = model.generation_config
    assert (kept.suppress_tokens, kept.bad_words_ids, kept.decoder_start_token_id, kept.top_k) == ([7], [[8]], 3, None)
