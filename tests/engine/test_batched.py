"""What only answering many at once brings."""

import contextlib
import logging
import threading

import pytest
import torch

from chat.engine import pages
from chat.engine.batched import BatchedEngine
from chat.engine.loading import LoadedModel
from chat.settings import EngineSettings
from chat.types import Chunk, GenerationFailed, GenerationParams, ModelInfo
from tests.engine.models import tiny_llama

WINDOW = 512
GREEDY = GenerationParams(max_new_tokens=40, temperature=0)


def ask(text="Hello"):
    return [{"role": "user", "content": text}]


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


def together(streams):
    """Read all streams to their ends, one chunk of each at a time; return each one's text, or its error."""
    results, running = [""] * len(streams), set(range(len(streams)))
    while running:
        for i in list(running):
            chunk = next_or_error(streams[i])
            if isinstance(chunk, Chunk):
                results[i] += chunk.text
            else:
                running.remove(i)
                results[i] = chunk or results[i]
    return results


def next_or_error(stream):
    """Return the next chunk, None at the end, or the error."""
    try:
        return next(stream, None)
    except GenerationFailed as error:
        return error


@pytest.fixture
def loaded():
    model, tokenizer = tiny_llama(max_position_embeddings=WINDOW)
    model.generation_config.suppress_tokens = list(model.generation_config.eos_token_id)
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", WINDOW, GenerationParams()))


@pytest.fixture
def create(loaded):
    with contextlib.ExitStack() as stack:

        def create_engine(**settings):
            return stack.enter_context(contextlib.closing(BatchedEngine(loaded, EngineSettings(**settings))))

        yield create_engine


@pytest.fixture
def engine(create):
    return create()


@pytest.fixture
def passes(loaded):
    """Return a list to which each forward pass adds how many tokens it reads."""
    counts = []
    loaded.model.get_input_embeddings().register_forward_pre_hook(lambda module, args: counts.append(args[0].numel()))
    return counts


def test_replies_share_the_forward_passes(engine, passes):
    passes.clear()
    together([engine.stream(ask(letter), GREEDY) for letter in "abcdefgh"])
    assert len(passes) < 8 * GREEDY.max_new_tokens / 2


def test_each_request_keeps_its_own_params(engine, loaded):
    """A greedy reply, a penalised one and a drawn one do not touch each other."""
    penalised = GREEDY.model_copy(update={"repetition_penalty": 1.5})
    drawn = GREEDY.model_copy(update={"temperature": 1.5, "seed": 3})
    all_params = [GREEDY, penalised, drawn, GREEDY.model_copy(update={"temperature": 1.5, "top_k": 1})]
    alone = [text_of(engine.stream(ask(), params)) for params in all_params]
    assert together([engine.stream(ask(), params) for params in all_params]) == alone
    assert alone[3] == alone[0]
    assert len(set(alone)) == 3
    ids = loaded.tokenizer.apply_chat_template(ask(), add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = loaded.model.generate(**ids, max_new_tokens=40, do_sample=False, repetition_penalty=1.5)
    assert alone[1] == loaded.tokenizer.decode(out[0, ids["input_ids"].shape[1] :])


def test_a_request_with_invalid_scores_fails_alone(engine, loaded):
    """C9: NaN in one row of the batch."""
    expected = text_of(engine.stream(ask("b"), GREEDY))

    def spoil(module, args, scores):
        if scores.shape[-2] == 2:
            scores[..., 0, :] = torch.nan

    loaded.model.lm_head.register_forward_hook(spoil)
    first, second = together([engine.stream(ask(letter), GREEDY) for letter in "ab"])
    assert "invalid numbers" in str(first)
    assert second == expected


def test_an_error_in_the_model_reaches_every_reader_and_the_next_request_works(engine, loaded, caplog):
    caplog.set_level(logging.CRITICAL, "ContinuousBatchingLogger")
    expected = text_of(engine.stream(ask(), GREEDY))
    streams = [engine.stream(ask(letter), GREEDY) for letter in "abc"]
    for stream in streams:
        while not next(stream).text:
            pass

    def fail(module, args):
        handle.remove()
        raise ValueError("the moon is full")

    handle = loaded.model.register_forward_pre_hook(fail)
    assert ["the moon is full" in str(result) for result in together(streams)] == [True] * 3
    assert text_of(engine.stream(ask(), GREEDY)) == expected


def test_a_second_turn_reads_only_what_is_new(create, passes):
    engine = create()
    question = ask("word " * 40)
    reply = text_of(engine.stream(question, GREEDY))
    turn = [*question, {"role": "assistant", "content": reply}, *ask("And then?")]
    passes.clear()
    *chunks, last = engine.stream(turn, GREEDY)
    assert 0 < last.usage.cached_tokens < last.usage.prompt_tokens
    assert passes[0] == last.usage.prompt_tokens - last.usage.cached_tokens
    assert text_of(create().stream(turn, GREEDY)) == text_of(chunks)


def test_a_long_prompt_is_read_in_steps_that_show_and_that_others_are_answered_between(create, passes, monkeypatch):
    monkeypatch.setattr(pages, "_STEP_TOKENS", 32)
    engine = create()
    passes.clear()
    short = engine.stream(ask(), GREEDY)
    while not next(short).text:
        pass
    *chunks, last = engine.stream(ask("word " * 80), GREEDY)
    progress = [chunk.progress.done for chunk in chunks if chunk.progress]
    assert progress == sorted(progress)
    assert max(passes) == 32
    assert sum(passes) >= last.usage.prompt_tokens
    assert text_of(short)


def test_a_stream_closed_while_its_prompt_is_read_is_read_no_further(create, loaded, monkeypatch):
    """T3 T8"""
    monkeypatch.setattr(pages, "_STEP_TOKENS", 32)
    engine = create()
    holding, go_on, passes = threading.Event(), threading.Event(), []

    def hold(module, args):
        passes.append(1)
        holding.set()
        assert go_on.wait(30)

    loaded.model.register_forward_pre_hook(hold)
    stream = engine.stream(ask("word " * 80), GREEDY)
    next(stream)
    assert holding.wait(10)
    stream.close()
    go_on.set()
    assert text_of(engine.stream(ask(), GREEDY.model_copy(update={"max_new_tokens": 1})))
    assert len(passes) <= 3


def test_who_does_not_fit_into_the_pool_waits_in_line_for_pages(create):
    """A small pool holds one long reply; the next one's place moves up when its pages are free again."""
    engine = create(cache_memory=1)
    long = GenerationParams(max_new_tokens=300, temperature=0)
    first, second, third = streams = [engine.stream(ask(letter), long) for letter in "abc"]
    next(first)
    while not next(first).text:
        pass
    assert [next(second).progress.done, next(third).progress.done] == [1, 2]
    first.close()
    while (chunk := next(second)).progress and chunk.progress.kind == "queued":
        pass
    assert next(third).progress.done == 1
    second.close()
    assert text_of(streams[2])


def test_a_pool_smaller_than_the_window_shortens_the_window(loaded, monkeypatch):
    per_token = pages._token_bytes(loaded.model.config, 4)
    monkeypatch.setattr(pages, "free_memory", lambda device: 400 * per_token)
    with contextlib.closing(BatchedEngine(loaded, EngineSettings())) as engine:
        window = engine.status().info.window
        assert 200 < window < 320
        *_, last = engine.stream(ask("word " * 20), GenerationParams(temperature=0))
        assert last.usage.prompt_tokens + last.usage.completion_tokens == window


def test_a_stop_text_of_one_request_ends_no_other(engine):
    """S12"""
    whole = text_of(engine.stream(ask(), GREEDY))
    stop = whole[len(whole) // 2 :][:3]
    stopped, going_on = together(
        [engine.stream(ask(), GREEDY.model_copy(update={"stop": (stop,)})), engine.stream(ask(), GREEDY)]
    )
    assert stopped == whole[: whole.index(stop)]
    assert going_on == whole


def test_seeds_hold_in_company(engine):
    """C11: with weights that do not round, as here."""
    seeded = [GREEDY.model_copy(update={"temperature": 1, "seed": seed}) for seed in range(4)]
    alone = [text_of(engine.stream(ask(), params)) for params in seeded]
    assert together([engine.stream(ask(), params) for params in seeded]) == alone
    assert len(set(alone)) == 4
