"""What was read once is not read again, and reading less changes nothing."""

import contextlib

import pytest
import torch
from transformers import DynamicCache

from chat.engine.direct import DirectEngine
from chat.engine.prefix import PrefixCache
from chat.settings import Settings
from chat.types import GenerationParams, OutOfMemory
from tests.engine.families import FAMILIES, load_family

SHORT = GenerationParams(max_new_tokens=12, temperature=0)


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


@pytest.mark.parametrize("family", FAMILIES)
def test_reuse_changes_no_text(family):
    """Greedy, in float32: sliding windows and recurrent states too."""
    loaded = load_family(family)
    with engine_for(loaded, 0) as engine:
        without = talk(engine)
    with engine_for(loaded, 10**8) as engine:
        reused = talk(engine)
    assert [text for text, _ in reused] == [text for text, _ in without]
    assert not any(usage.cached_tokens for _, usage in without)


def test_each_turn_reads_only_what_is_new():
    with engine_for(load_family("llama"), 10**8) as engine:
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
    with engine_for(load_family("llama"), 10**8) as engine:
        messages = [{"role": "user", "content": "Hello " * 30}]
        stream = engine.stream(messages, SHORT.model_copy(update={"max_new_tokens": 500}))
        while not next(stream).text:
            pass
        stream.close()
        assert run(engine, messages)[1].cached_tokens > 60


def test_out_of_memory_drops_the_kept_caches_before_it_fails():
    loaded = load_family("llama")
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
