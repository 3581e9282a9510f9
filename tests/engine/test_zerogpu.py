"""The engine for ZeroGPU, with real forks of a tiny model, and a stand-in for what gives out the GPU."""

from __future__ import annotations

import os
import signal
from contextvars import copy_context
from multiprocessing.connection import wait

import pytest
import spaces
from gradio.context import LocalContext
from gradio.exceptions import Error

from chat.engine import zerogpu
from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel
from chat.engine.zerogpu import ZeroGPUEngine, create_zerogpu_engine, gpu_seconds
from chat.settings import Settings
from chat.types import (
    ChatError,
    EngineUnavailable,
    GenerationFailed,
    GenerationParams,
    ModelInfo,
    ModelNotFound,
    OutOfMemory,
    PromptTooLong,
    QueueFull,
)
from tests.engine.gpu_process import FORK, GPU
from tests.engine.models import tiny_llama

SHORT = GenerationParams(max_new_tokens=8, temperature=0)
LONG = GenerationParams(max_new_tokens=300, temperature=0)


def ask(text="Hello"):
    return [{"role": "user", "content": text}]


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


@pytest.fixture
def gpu(monkeypatch):
    gpu = GPU()
    monkeypatch.setattr(spaces, "GPU", gpu)
    monkeypatch.delenv("HF_DEACTIVATE_ASYNC_LOAD", raising=False)
    yield gpu
    # Not joined, because the engine's own thread does that, and only one can.
    assert all(wait([process.sentinel], 30) for process in gpu.processes)
    os.environ.pop("HF_DEACTIVATE_ASYNC_LOAD", None)


@pytest.fixture
def loaded():
    model, tokenizer = tiny_llama()
    # A random model may end at any moment; these tests say themselves when a reply ends.
    model.generation_config.eos_token_id = None
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cuda:0", "float32", 512, GenerationParams()))


@pytest.fixture
def engine(gpu, loaded):
    return ZeroGPUEngine(Settings(), lambda settings, report: loaded)


def test_a_reply_is_the_one_that_the_model_writes_anywhere(engine, gpu, loaded):
    chunks = list(engine.stream(ask(), SHORT))
    direct = DirectEngine(loaded, Settings(engine="direct"))
    expected = list(direct.stream(ask(), SHORT))
    direct.close()
    assert text_of(chunks) == text_of(expected) != ""
    assert chunks[-1].finish_reason == expected[-1].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-1].usage.prompt_tokens == expected[-1].usage.prompt_tokens
    assert len(gpu.processes) == 1


def test_only_plain_values_cross_to_the_process_with_the_gpu(engine, gpu, monkeypatch):
    """Z4: the stand-in pickles them both ways; these are plain beyond that."""
    crossed = []
    inner = engine._tokens_from_gpu

    def record(*args):
        crossed.extend(args)
        for value in inner(*args):
            crossed.append(value)
            yield value

    monkeypatch.setattr(engine, "_tokens_from_gpu", record)
    list(engine.stream(ask(), SHORT))
    assert {type(value) for value in crossed} <= {list, int, dict, type(None)}


def test_the_prompt_is_checked_before_a_gpu_is_asked_for(engine, gpu):
    with pytest.raises(PromptTooLong):
        engine.stream(ask("word " * 2000), SHORT)
    assert gpu.seconds == []


def test_a_closed_stream_ends_the_writing_in_the_other_process(engine, gpu, loaded):
    """Z4: an event that is set here is not seen there."""
    begun = FORK.Value("i", 0)
    loaded.model.register_forward_pre_hook(lambda *_: setattr(begun, "value", begun.value + 1))
    stream = engine.stream(ask(), LONG)
    next(chunk for chunk in stream if chunk.text)
    stream.close()
    assert wait([gpu.processes[0].sentinel], 30)
    assert begun.value < 290


def test_a_stop_text_ends_the_writing(engine, gpu):
    whole = text_of(engine.stream(ask(), GenerationParams(max_new_tokens=60, temperature=0)))
    stop = whole[len(whole) // 2 :][:3]
    chunks = list(engine.stream(ask(), LONG.model_copy(update={"stop": (stop,)})))
    assert text_of(chunks) == whole[: whole.index(stop)]
    assert chunks[-1].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens <= 60


def test_while_there_is_no_gpu_and_no_token_the_reader_hears_of_it(engine, gpu, loaded):
    """A stop, a closed tab and a dropped connection are only noticed by who is yielded to."""
    go_on = FORK.Event()
    loaded.model.register_forward_pre_hook(lambda *_: go_on.wait(30) and None)
    stream = engine.stream(ask(), SHORT)
    first = next(stream)
    assert first.progress.kind == "queued"
    assert "GPU" in first.progress.text
    assert next(chunk for chunk in stream if chunk.progress is None).text == ""  # a heartbeat from the fork
    go_on.set()
    assert list(stream)[-1].finish_reason == "length"


def test_the_visitor_whose_quota_counts_is_known_to_spaces(engine, gpu):
    """Z3"""
    context = copy_context()
    context.run(LocalContext.request.set, "the visitor's request")
    context.run(lambda: list(engine.stream(ask(), SHORT)))
    assert gpu.requests == ["the visitor's request"]


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 16), (100, 20), (1024, 67), (5000, 75), (10**6, 75)])
def test_what_is_asked_for_follows_the_longest_reply_up_to_75_s(tokens, seconds):
    """Z3"""
    assert gpu_seconds([1] * 1000, tokens, {}) == seconds


def test_the_gpu_is_asked_for_by_the_longest_reply(engine, gpu):
    """Z3"""
    list(engine.stream(ask(), SHORT))
    assert gpu.seconds == [16]


def test_a_reply_ends_by_itself_before_the_gpu_is_taken_away(engine, monkeypatch):
    """Z3"""
    monkeypatch.setattr(zerogpu, "gpu_seconds", lambda *_: 15)
    chunks = list(engine.stream(ask(), LONG))
    assert chunks[-1].finish_reason == "length"
    assert 1 <= chunks[-1].usage.completion_tokens < 300


@pytest.mark.parametrize(
    ("title", "message", "shown"),
    [
        ("ZeroGPU quota exceeded", "You have exceeded your free ZeroGPU quota (67s requested vs. 3s left).", "Sign in"),
        ("ZeroGPU illegal duration", "The requested GPU duration (75s) is larger than allowed", "Lower Max tokens"),
        ("ZeroGPU queue timeout", "No GPU was available after 60s", "Try again"),
    ],
)
def test_why_there_is_no_gpu_is_passed_on_with_what_to_do(engine, gpu, title, message, shown):
    """Z3"""
    gpu.refusal = Error(message, title=title)
    with pytest.raises(EngineUnavailable, match=shown) as caught:
        list(engine.stream(ask(), SHORT))
    assert message.rstrip(".") in str(caught.value)


def test_a_scheduler_out_of_reach_is_told_in_words(engine, gpu):
    gpu.refusal = ConnectionError("refused")
    with pytest.raises(EngineUnavailable, match=r"refused.*Try again"):
        list(engine.stream(ask(), SHORT))


def fail_with(error):
    def hook(*_):
        raise error

    return hook


@pytest.mark.parametrize(
    ("error", "kind", "shown"),
    [
        (MemoryError(), OutOfMemory, "not enough memory"),
        (RuntimeError("CUDA error: device-side assert"), GenerationFailed, "Try again"),
        (ValueError("odd"), GenerationFailed, "ValueError: odd"),
    ],
)
def test_a_failure_of_the_model_comes_over_in_words_and_the_next_reply_is_whole(
    engine, gpu, loaded, error, kind, shown
):
    hook = loaded.model.register_forward_pre_hook(fail_with(error))
    with pytest.raises(kind, match=shown) as caught:
        list(engine.stream(ask(), SHORT))
    assert type(caught.value) is kind
    assert "Restart" not in str(caught.value)
    hook.remove()
    assert list(engine.stream(ask(), SHORT))[-1].finish_reason == "length"


def test_a_gpu_taken_away_keeps_the_text_so_far(engine, gpu):
    stream = engine.stream(ask(), LONG)
    next(chunk for chunk in stream if chunk.text)
    os.kill(gpu.processes[0].pid, signal.SIGKILL)
    with pytest.raises(GenerationFailed, match="Continue the reply"):
        list(stream)


def test_more_replies_than_may_wait_are_refused(gpu, loaded):
    engine = ZeroGPUEngine(Settings(queue_size=1), lambda settings, report: loaded)
    stream = engine.stream(ask(), LONG)
    next(stream)
    with pytest.raises(QueueFull):
        engine.stream(ask(), SHORT)
    engine.close()
    assert list(stream)[-1].finish_reason == "cancelled"
    assert list(engine.stream(ask(), SHORT))[-1].finish_reason == "length"


def test_the_model_is_loaded_for_cuda_on_the_calling_thread(gpu, loaded):
    """Z2: what other threads do with the emulated GPU fails."""
    seen = []

    def load(settings, report):
        seen.append((settings.device, os.environ["HF_DEACTIVATE_ASYNC_LOAD"], len(gpu.tasks)))
        return loaded

    assert create_zerogpu_engine(Settings(), load).status().state == "ready"
    assert seen == [("cuda", "1", 1)]


def test_a_model_that_cannot_load_leaves_an_engine_that_says_why(gpu):
    """Z1: the function is decorated all the same, so that the Space runs and shows it."""

    def load(settings, report):
        raise ModelNotFound("There is no model x/y.")

    engine = create_zerogpu_engine(Settings(), load)
    with pytest.raises(ModelNotFound, match="x/y"):
        list(engine.stream(ask(), SHORT))
    assert engine.status().state == "failed"
    assert len(gpu.tasks) == 1


def test_the_batched_engine_is_refused_in_words(gpu, loaded):
    engine = create_zerogpu_engine(Settings(engine="batched"), lambda settings, report: loaded)
    with pytest.raises(ChatError, match="--engine"):
        list(engine.stream(ask(), SHORT))
