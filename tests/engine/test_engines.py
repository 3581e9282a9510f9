"""What every local engine promises, shown on a tiny random model with its real worker thread."""

import contextlib
import gc
import logging
import threading
import weakref

import pytest
import torch

from chat.engine.batched import BatchedEngine
from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel
from chat.settings import Settings
from chat.types import (
    GenerationFailed,
    GenerationParams,
    ModelInfo,
    OutOfMemory,
    PromptTooLong,
    QueueFull,
)
from tests.engine.models import tiny_llama

WINDOW = 512
LONG = GenerationParams(max_new_tokens=300, temperature=0)
SHORT = GenerationParams(max_new_tokens=8, temperature=0)


def ask(text="Hello"):
    return [{"role": "user", "content": text}]


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


class Probe:
    """Watches and disturbs the model: counts its forward passes, holds one up, or lets one fail."""

    def __init__(self, model):
        self.calls = 0
        self.fail_at = {}
        self.hold_at, self.holding, self.go_on = None, threading.Event(), threading.Event()
        model.register_forward_pre_hook(self._before)

    def _before(self, model, args):
        self.calls += 1
        if self.calls == self.hold_at:
            self.holding.set()
            assert self.go_on.wait(30)
        if error := self.fail_at.pop(self.calls, None):
            raise error


@pytest.fixture
def loaded():
    model, tokenizer = tiny_llama(max_position_embeddings=WINDOW)
    # A random model may end at any moment; these tests say themselves when a reply ends.
    model.generation_config.suppress_tokens = list(model.generation_config.eos_token_id)
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", WINDOW, GenerationParams(temperature=0.7)))


@pytest.fixture(params=[DirectEngine, BatchedEngine])
def create(request, loaded):
    """Return a function that makes an engine; all are closed at the end and leave no thread."""
    before = threading.active_count()
    with contextlib.ExitStack() as stack:

        def create_engine(**settings):
            return stack.enter_context(contextlib.closing(request.param(loaded, Settings(**settings))))

        yield create_engine
    assert threading.active_count() == before


@pytest.fixture
def engine(create):
    return create()


@pytest.fixture
def probe(loaded):
    return Probe(loaded.model)


def bare_text(loaded, prompt, max_new_tokens):
    ids = loaded.tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = loaded.model.generate(**ids, max_new_tokens=max_new_tokens, do_sample=False)
    return loaded.tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def test_a_stream_joins_to_what_generate_gives_without_streaming(engine, loaded):
    """S11 C6: from the first character, and nothing of the prompt."""
    prompt = ask("The capital of France " * 12)
    assert text_of(engine.stream(prompt, LONG)) == bare_text(loaded, prompt, LONG.max_new_tokens)


def test_only_the_last_chunk_has_reason_and_usage(engine):
    *chunks, last = engine.stream(ask(), SHORT)
    assert {(chunk.finish_reason, chunk.usage) for chunk in chunks} == {(None, None)}
    assert last.finish_reason == "length"
    assert last.usage.completion_tokens == 8
    assert last.usage.prompt_tokens > 0
    assert last.usage.first_token_s > 0


def test_reading_a_long_prompt_shows_its_progress(engine):
    progress = [c.progress for c in engine.stream(ask("word " * 60), SHORT) if c.progress]
    assert all(p.kind == "reading" and p.done < p.total for p in progress)


def test_a_closed_stream_stops_the_model_within_two_tokens(engine, probe):
    """T1 T7"""
    stream = engine.stream(ask(), LONG)
    while not next(stream).text:
        pass
    probe.hold_at = probe.calls + 1
    assert probe.holding.wait(10)
    stream.close()
    calls = probe.calls
    probe.go_on.set()
    assert text_of(engine.stream(ask(), SHORT))
    assert probe.calls - calls <= 2 + 1 + SHORT.max_new_tokens  # the new request reads its prompt in one piece


def test_a_stream_can_be_closed_while_its_prompt_is_read(engine, probe):
    """T8 T3: the pieces that are left are not read."""
    probe.hold_at = 1
    stream = engine.stream(ask("word " * 60), LONG)
    progress = next(chunk.progress for chunk in stream if chunk.progress)
    assert probe.holding.wait(10)
    assert progress.kind == "reading"
    assert progress.total > 150
    stream.close()
    probe.go_on.set()
    assert text_of(engine.stream(ask(), SHORT))
    assert probe.calls <= 1 + 1 + 1 + SHORT.max_new_tokens


def test_an_error_reaches_the_reader_with_its_text_and_the_next_request_works(engine, probe):
    """S1: no endless wait, and what was written before is kept."""
    probe.fail_at[5] = ValueError("the moon is full")
    received = []
    with pytest.raises(GenerationFailed, match="ValueError: the moon is full"):
        received.extend(engine.stream(ask(), LONG))
    assert text_of(received)
    assert text_of(engine.stream(ask(), SHORT))


def test_an_error_without_a_text_is_not_shown_blank(engine, probe):
    """S2"""
    probe.fail_at[3] = RuntimeError()
    with pytest.raises(GenerationFailed, match=r"RuntimeError: \w+"):
        list(engine.stream(ask(), LONG))


def test_a_slow_first_token_is_no_error_and_the_reader_is_never_blocked(engine, probe):
    """S2: while nothing comes, the generator still yields."""
    probe.hold_at = 1
    stream = engine.stream(ask(), SHORT)
    assert [next(stream).text for _ in range(5)] == [""] * 5
    probe.go_on.set()
    assert text_of(stream)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["accelerator", "cpu"],
)
def test_after_out_of_memory_the_memory_is_given_back_and_the_next_request_works(engine, loaded, caplog, error):
    """L4: neither the exception nor its frames keep a tensor alive."""
    caplog.set_level(logging.CRITICAL, "ContinuousBatchingLogger")  # pytest keeps what is logged, with its traceback
    tensors = []

    def fail(module, args):
        tensor = torch.zeros(10)
        tensors.append(weakref.ref(tensor))
        raise error

    handle = loaded.model.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(OutOfMemory, match="shorter"):
        list(engine.stream(ask(), SHORT))
    handle.remove()
    error.__traceback__ = None
    gc.collect()
    assert [tensor() for tensor in tensors] == [None]
    assert text_of(engine.stream(ask(), SHORT))


def test_invalid_scores_are_said_in_words_and_the_next_request_works(engine, loaded):
    """C9"""
    weight = loaded.model.lm_head.weight
    kept = weight.detach().clone()
    weight.data.fill_(float("nan"))
    for temperature in (0, 1):
        with pytest.raises(GenerationFailed, match="invalid numbers"):
            list(engine.stream(ask(), GenerationParams(temperature=temperature, max_new_tokens=5)))
    weight.data.copy_(kept)
    assert text_of(engine.stream(ask(), SHORT))


def test_two_readers_never_share_a_character(engine, loaded):
    """S4 G9 H5"""
    prompts = [ask(f"{letter} " * 20) for letter in "abcd"]
    expected = [bare_text(loaded, prompt, 60) for prompt in prompts]
    streams = [engine.stream(prompt, GenerationParams(max_new_tokens=60, temperature=0)) for prompt in prompts]
    texts = [""] * 4
    running = set(range(4))
    while running:
        for i in list(running):
            chunk = next(streams[i], None)
            if chunk is None:
                running.remove(i)
            else:
                texts[i] += chunk.text
    assert texts == expected


def test_a_stop_text_ends_the_reply_before_it(engine, loaded):
    """S12"""
    whole = text_of(engine.stream(ask(), LONG))
    stop = whole[20:24]
    *chunks, last = engine.stream(ask(), LONG.model_copy(update={"stop": (stop,)}))
    assert text_of(chunks) == whole[: whole.index(stop)]
    assert last.finish_reason == "stop"
    assert last.usage.completion_tokens < LONG.max_new_tokens


@pytest.mark.parametrize("which", [0, 1])
def test_every_end_token_ends_the_reply_and_none_is_shown(create, loaded, which):
    """S16"""
    end = loaded.model.generation_config.eos_token_id[which]
    loaded.model.generation_config.suppress_tokens = None
    passes = 0

    def force_end(module, args, logits):
        nonlocal passes
        passes += 1
        logits[..., end] = 1e4 if passes > 4 else -1e4

    engine = create()
    loaded.model.lm_head.register_forward_hook(force_end)
    *chunks, last = engine.stream(ask(), LONG)
    assert last.finish_reason == "stop"
    assert "<|" not in text_of(chunks)


def test_prompt_and_reply_always_fit_the_window(engine, loaded):
    """C1 C2"""
    *_, last = engine.stream(ask("word " * 70), GenerationParams(max_new_tokens=10**6, temperature=0))
    assert last.usage.prompt_tokens + last.usage.completion_tokens == WINDOW


def test_a_prompt_over_the_window_is_refused_at_once(engine):
    with pytest.raises(PromptTooLong) as error:
        engine.stream(ask("word " * 2000), SHORT)
    assert error.value.window == WINDOW
    assert error.value.prompt_tokens > 2000


def test_the_same_seed_gives_the_same_text_whatever_else_runs(engine):
    """C11"""
    seeded = GenerationParams(max_new_tokens=30, temperature=1, seed=7)
    other = GenerationParams(max_new_tokens=30, temperature=1, seed=8)
    alone = text_of(engine.stream(ask(), seeded))
    beside, first, second = engine.stream(ask(), other), engine.stream(ask(), seeded), ""
    for chunk in first:
        second += chunk.text
        next(beside, None)
    assert second == alone
    assert text_of(engine.stream(ask(), other)) != alone


def test_an_unseeded_reply_varies_also_after_a_seeded_one(engine):
    """C11"""
    seeded = GenerationParams(max_new_tokens=30, temperature=1, seed=7)
    texts = set()
    for _ in range(3):
        list(engine.stream(ask(), seeded))
        texts.add(text_of(engine.stream(ask(), seeded.model_copy(update={"seed": None}))))
    assert len(texts) == 3


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-7, 1])
def test_any_temperature_works_without_a_warning(engine, temperature, caplog, recwarn):
    """C8 C9 C10 C12"""
    assert text_of(engine.stream(ask(), GenerationParams(temperature=temperature, top_k=5, max_new_tokens=4)))
    assert not caplog.records
    assert not recwarn.list


def test_a_vanishing_temperature_is_greedy(engine):
    """C9"""
    greedy = text_of(engine.stream(ask(), LONG))
    assert text_of(engine.stream(ask(), LONG.model_copy(update={"temperature": 1e-9}))) == greedy


def test_text_is_continued_raw_without_the_template(engine, loaded):
    text = "The capital of"
    *chunks, last = engine.stream(text, SHORT)
    ids = loaded.tokenizer(text, return_tensors="pt")
    out = loaded.model.generate(**ids, max_new_tokens=8, do_sample=False)
    whole = loaded.tokenizer.decode(out[0], skip_special_tokens=True)
    assert text + text_of(chunks) == whole
    assert last.usage.prompt_tokens == ids["input_ids"].shape[1]


def test_a_partial_reply_goes_on_where_it_ended(engine, loaded):
    """T9"""
    whole = text_of(engine.stream(ask(), LONG))
    half = whole[: whole.rindex(" ", 0, len(whole) // 2) + 1] if " " in whole[: len(whole) // 2] else whole[:10]
    prompt = [*ask(), {"role": "assistant", "content": half}]
    assert text_of(engine.stream(prompt, SHORT))


class TestDirect:
    """What only one reply at a time brings: a line."""

    @pytest.fixture
    def engine(self, loaded):
        with contextlib.closing(DirectEngine(loaded, Settings(queue_size=2))) as engine:
            yield engine

    def test_who_waits_knows_their_place_and_moves_up(self, engine, probe):
        probe.hold_at = 1
        first, second, third = (engine.stream(ask(), LONG) for _ in range(3))
        next(first)
        assert probe.holding.wait(10)
        assert next(second).progress.done == 1
        assert next(third).progress.done == 2
        second.close()
        assert next(third).progress.done == 1
        first.close()
        probe.go_on.set()
        assert text_of(third)

    def test_a_full_line_refuses_at_once(self, engine, probe):
        """H5"""
        probe.hold_at = 1
        first = engine.stream(ask(), LONG)
        next(first)
        assert probe.holding.wait(10)
        waiting = [engine.stream(ask(), SHORT) for _ in range(2)]
        for stream in waiting:
            next(stream)
        with pytest.raises(QueueFull, match="2 people"):
            engine.stream(ask(), SHORT)
        for stream in (first, *waiting):
            stream.close()
        probe.go_on.set()
        assert text_of(engine.stream(ask(), SHORT))

    def test_a_lost_device_is_reported_instead_of_failing_silently(self, engine, probe):
        """C1: a CUDA assert spoils the process."""
        probe.fail_at[1] = RuntimeError("CUDA error: device-side assert triggered")
        with pytest.raises(GenerationFailed, match="Restart"):
            list(engine.stream(ask(), SHORT))
        assert engine.status().state == "failed"
        with pytest.raises(GenerationFailed, match="Restart"):
            engine.stream(ask(), SHORT)

    def test_closing_the_engine_ends_every_stream(self, engine, probe):
        streams = [engine.stream(ask(), LONG) for _ in range(3)]
        for stream in streams:
            next(stream)
        engine.close()
        assert [list(stream)[-1].finish_reason for stream in streams] == ["cancelled"] * 3
