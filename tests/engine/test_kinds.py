"""Which engine answers, and what the log says of it."""

import contextlib
import logging
import re
import threading

import pytest
import torch

from chat.engine.batched import BatchedEngine
from chat.engine.batching_trial import CannotBatch
from chat.engine.direct import DirectEngine
from chat.engine.kinds import create_local_engine
from chat.engine.loading import LoadedModel
from chat.engine.mixed import MixedEngine
from chat.settings import EngineSettings
from chat.types import GenerationParams, ModelInfo
from tests.engine.families import CAN_BATCH, load_family
from tests.engine.models import tiny_llama, tiny_t5
from tests.fakes import FakeEngine

ASK = [{"role": "user", "content": "Hello"}]


def load(model, tokenizer):
    return LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 256, GenerationParams(max_new_tokens=5)))


def spoil_batches(model):
    """Let the model write nonsense, but only when it is called as a batch calls it."""

    def spoil(module, args, kwargs, output):
        if "cu_seq_lens_q" in kwargs:
            output.logits.neg_()

    model.register_forward_hook(spoil, with_kwargs=True)


def fail_in_batches(model):
    def fail(module, args, kwargs):
        if "cu_seq_lens_q" in kwargs:
            raise ValueError("no such layer")

    model.register_forward_pre_hook(fail, with_kwargs=True)


@pytest.fixture
def open_engine(caplog):
    caplog.set_level(logging.INFO, "chat")
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        yield lambda loaded, kind: stack.enter_context(
            contextlib.closing(create_local_engine(loaded, EngineSettings(engine=kind)))
        )
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("asked", "kind", "reason"),
    [
        ("auto", MixedEngine, "those with a seed one at a time beside them"),
        ("batched", BatchedEngine, "as --engine asks"),
        ("direct", DirectEngine, "as --engine asks"),
    ],
)
def test_the_engine_that_was_asked_for_answers_and_the_log_says_why(open_engine, caplog, asked, kind, reason):
    engine = open_engine(load(*tiny_llama()), asked)
    assert isinstance(engine, kind)
    assert reason in caplog.text
    assert list(engine.stream(ASK, GenerationParams()))[-1].usage.completion_tokens


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_batches, "it writes other tokens then"),
        (fail_in_batches, "it fails then .ValueError: no such layer"),
        (lambda model: model.set_attn_implementation("eager"), "its attention is eager"),
    ],
)
def test_a_model_that_cannot_be_batched_is_answered_directly_or_refused(open_engine, caplog, spoil, reason):
    model, tokenizer = tiny_llama()
    spoil(model)
    with pytest.raises(CannotBatch, match=f"because {reason}.*--engine direct"):
        create_local_engine(load(model, tokenizer), EngineSettings(engine="batched"))
    engine = open_engine(load(model, tokenizer), "auto")
    assert isinstance(engine, DirectEngine)
    assert "cannot be batched" in caplog.text
    assert list(engine.stream(ASK, GenerationParams()))[-1].usage.completion_tokens


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (lambda: load(*tiny_t5()), "it is an encoder-decoder"),
        (lambda: load_family("recurrent"), "it has no attention"),
        (lambda: load_family("hybrid"), "of its layers .Invalid layer type: conv"),
    ],
)
def test_models_of_other_kinds_are_answered_directly(open_engine, caplog, create, reason):
    engine = open_engine(create(), "auto")
    assert isinstance(engine, DirectEngine)
    assert re.search(f"because {reason}", caplog.text)
    assert list(engine.stream(ASK, GenerationParams()))[-1].usage.completion_tokens


@pytest.mark.parametrize("family", CAN_BATCH)
def test_every_engine_writes_the_same(open_engine, family):
    """Greedy, in float32, over turns that are longer than a sliding window."""
    loaded, params = load_family(family), GenerationParams(max_new_tokens=30, temperature=0)
    direct, batched = open_engine(loaded, "direct"), open_engine(loaded, "batched")
    talk = [{"role": "user", "content": "Hello " * 20}]
    for question in ("And then?", "And after that?"):
        reply = text_of(direct.stream(talk, params))
        assert text_of(batched.stream(talk, params)) == reply
        talk += [{"role": "assistant", "content": reply}, {"role": "user", "content": question}]


@pytest.mark.parametrize("default", [None, 7])
def test_only_requests_with_a_seed_are_answered_beside_the_batch(default):
    """C11: in a batch, rounding depends on who else is in it."""
    batched, direct = FakeEngine(), FakeEngine()
    engine = MixedEngine(batched, direct, GenerationParams(seed=default))
    for params in (GenerationParams(), GenerationParams(seed=0)):
        list(engine.stream(ASK, params))
    assert len(batched.params) == (default is None)
    assert len(direct.params) == 2 - len(batched.params)


def test_both_engines_answer_at_the_same_time_what_they_answer_alone(open_engine):
    """C11"""
    engine = open_engine(load(*tiny_llama(dtype=torch.bfloat16)), "auto")
    kinds = [GenerationParams(max_new_tokens=40, temperature=t, seed=s) for t, s in ((1, 1), (0, None), (1, 2), (1, 3))]
    seeded = [params for params in kinds if params.seed]
    alone = {params.seed: text_of(engine.stream(ASK, params)) for params in seeded}
    streams = {params.seed: engine.stream(ASK, params) for params in kinds}
    for _ in range(20):
        next(streams[None], None)
    assert {params.seed: text_of(streams[params.seed]) for params in seeded} == alone
    assert text_of(streams[None])


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)
