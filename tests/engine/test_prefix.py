"""What was read once is not read again, and reading less changes nothing."""

import contextlib

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, Gemma3TextConfig, Lfm2Config, MambaConfig, MistralConfig

from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel
from chat.engine.prefix import PrefixCache
from chat.settings import Settings
from chat.types import GenerationParams, ModelInfo, OutOfMemory
from tests.engine.models import byte_tokenizer, tiny_llama

SHORT = GenerationParams(max_new_tokens=12, temperature=0)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "mistral": lambda vocab: MistralConfig(vocab_size=vocab, sliding_window=16, **SIZES),
    "gemma": lambda vocab: Gemma3TextConfig(vocab_size=vocab, sliding_window=16, head_dim=8, **SIZES),
    "hybrid": lambda vocab: Lfm2Config(vocab_size=vocab, full_attn_idxs=[1, 3], **SIZES),
    "recurrent": lambda vocab: MambaConfig(vocab_size=vocab, hidden_size=32, num_hidden_layers=2),
}


def load(family):
    if family == "llama":
        model, tokenizer = tiny_llama(max_position_embeddings=1024)
    else:
        tokenizer = byte_tokenizer()
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[family](len(tokenizer))).eval()
        # Larger weights, so that the context decides what comes next.
        for parameter in model.parameters():
            parameter.data.mul_(3 if parameter.dim() > 1 else 1)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.eos_token_id
    model.generation_config.suppress_tokens = [tokenizer.eos_token_id]
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 1024, GenerationParams()))


@contextlib.contextmanager
def engine_for(loaded, cache_memory):
    with contextlib.closing(DirectEngine(loaded, Settings(cache_memory=cache_memory))) as engine:
        yield engine


def run(engine, messages):
    *chunks, last = engine.stream(messages, SHORT)
    return "".join(chunk.text for chunk in chunks), last.usage


def talk(engine):
    """A conversation with a retry, an edit and a second visitor; returns each reply with its usage."""
    history, results = [], []
    for turn in range(3):
        history.append({"role": "user", "content": f"Question {turn}: " + "a few words more " * 4})
        results.append(run(engine, history))
        history.append({"role": "assistant", "content": results[-1][0]})
    results.append(run(engine, history[:-1]))  # retry
    results.append(run(engine, [*history[:2], {"role": "user", "content": "Another question"}]))  # edit
    results.append(run(engine, [{"role": "user", "content": "Somebody else"}]))
    results.append(run(engine, history[:-1]))
    results.append(run(engine, [*history[:-1], {"role": "assistant", "content": "Well, the"}]))  # continue
    return results


@pytest.mark.parametrize("family", ["llama", *CONFIGS])
def test_reuse_changes_no_text(family):
    """Greedy, in float32: sliding windows and recurrent states too."""
    loaded = load(family)
    with engine_for(loaded, 0) as engine:
        without = talk(engine)
    with engine_for(loaded, 10**8) as engine:
        reused = talk(engine)
    assert [text for text, _ in reused] == [text for text, _ in without]
    assert not any(usage.cached_tokens for _, usage in without)


def test_each_turn_reads_only_what_is_new():
    with engine_for(load("llama"), 10**8) as engine:
        first, second, third, retry, edit, stranger, back, go_on = [usage for _, usage in talk(engine)]
    assert first.cached_tokens == 0
    assert second.cached_tokens >= first.prompt_tokens
    assert third.cached_tokens >= second.prompt_tokens
    assert retry.cached_tokens == retry.prompt_tokens - 1
    assert edit.cached_tokens >= first.prompt_tokens
    assert stranger.cached_tokens < 10
    assert back.cached_tokens == back.prompt_tokens - 1
    assert go_on.cached_tokens >= back.prompt_tokens - 1


def test_a_stopped_reply_leaves_what_was_read():
    with engine_for(load("llama"), 10**8) as engine:
        messages = [{"role": "user", "content": "Hello " * 30}]
        stream = engine.stream(messages, SHORT.model_copy(update={"max_new_tokens": 500}))
        while not next(stream).text:
            pass
        stream.close()
        assert run(engine, messages)[1].cached_tokens > 60


def test_out_of_memory_drops_the_kept_caches_before_it_fails():
    loaded = load("llama")
    with engine_for(loaded, 10**8) as engine:
        run(engine, [{"role": "user", "content": "Hello"}])
        errors = [torch.OutOfMemoryError("CUDA out of memory")]

        def fail(module, args):
            if errors:
                raise errors.pop()

        loaded.model.register_forward_pre_hook(fail)
        text, usage = run(engine, [{"role": "user", "content": "Hello"}])
        assert text
        assert usage.cached_tokens == 0
        assert "<|im_start|>" not in text
        errors += [torch.OutOfMemoryError("CUDA out of memory")] * 2
        with pytest.raises(OutOfMemory):
            run(engine, [{"role": "user", "content": "Hello"}])


def cache_of(length):
    cache = DynamicCache()
    cache.update(torch.zeros(1, 1, length, 8), torch.zeros(1, 1, length, 8), 0)
    return cache


TOKEN_BYTES = 2 * 8 * 4


def test_the_budget_holds_and_the_least_recently_used_goes_first():
    kept = PrefixCache(25 * TOKEN_BYTES)
    kept.keep([1] * 10, cache_of(10))
    kept.keep([2] * 10, cache_of(10))
    cache, n = kept.take([1] * 10 + [9])
    assert n == 10
    kept.keep([1] * 11, cache)
    kept.keep([3] * 10, cache_of(10))
    assert kept.size <= 25 * TOKEN_BYTES
    assert kept.take([2] * 10) is None
    assert kept.take([1] * 12)[1] == 11


def test_a_conversation_replaces_its_own_shorter_beginning():
    kept = PrefixCache(10**6)
    for length in (4, 8, 12):
        kept.keep(list(range(length)), cache_of(length))
    assert kept.size == 12 * TOKEN_BYTES


def test_a_shared_beginning_is_copied_so_that_both_keep_theirs():
    kept = PrefixCache(10**6)
    kept.keep([1, 2, 3, *[4] * 20], cache_of(23))
    cache, n = kept.take([1, 2, 3, *[5] * 20])
    assert (n, cache.get_seq_length()) == (3, 3)
    assert kept.take([1, 2, 3, *[4] * 21])[1] == 23


def test_at_least_one_token_is_left_to_read():
    kept = PrefixCache(10**6)
    kept.keep([1, 2, 3], cache_of(3))
    cache, n = kept.take([1, 2, 3])
    assert (n, cache.get_seq_length()) == (2, 2)


def test_a_budget_of_nothing_keeps_nothing():
    kept = PrefixCache(0)
    kept.keep([1, 2, 3], cache_of(3))
    assert kept.take([1, 2, 3, 4]) is None
