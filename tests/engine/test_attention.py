"""Attending to one request at a time gives what attending to all with a mask gives."""

import contextlib

import pytest
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from chat.engine import attention
from chat.engine.attention import attend
from chat.engine.batched import BatchedEngine
from chat.engine.loading import LoadedModel
from chat.settings import EngineSettings
from chat.types import GenerationParams, ModelInfo
from tests.engine.models import tiny_llama

LENGTHS = [(1, 7), (5, 5), (3, 12), (1, 1)]
"""Queries and keys of each request: one that writes, one whose prompt is read, one that reads on, a new one."""


def batch(window=None):
    """Return random query, key and value, the mask of the batch, and where its requests begin."""
    draw = torch.Generator().manual_seed(0)
    queries, keys = (torch.tensor([0, *lengths]).cumsum(0) for lengths in zip(*LENGTHS, strict=True))
    mask = torch.full((1, 1, int(queries[-1]), int(keys[-1])), torch.finfo(torch.float32).min)
    for i, (q, k) in enumerate(LENGTHS):
        seen = torch.ones(q, k).tril(k - q)
        if window:
            seen = seen.triu(k - q - window + 1)
        mask[0, 0, queries[i] : queries[i + 1], keys[i] : keys[i + 1]][seen.bool()] = 0
    tensors = (
        torch.randn(1, heads, n, 8, generator=draw) for heads, n in ((4, queries[-1]), (2, keys[-1]), (2, keys[-1]))
    )
    return (*tensors, mask), {"cu_seq_lens_q": queries, "cu_seq_lens_k": keys}


@pytest.fixture
def module():
    module = nn.Module()
    module.num_key_value_groups = 2
    return module


@pytest.mark.parametrize("window", [None, 4], ids=["full", "sliding"])
@pytest.mark.parametrize("limit", [0, 10**9], ids=["split", "whole"])
def test_the_result_is_the_same_split_or_not(monkeypatch, module, window, limit):
    monkeypatch.setattr(attention, "_WORTH_SPLITTING", limit)
    tensors, starts = batch(window)
    expected = sdpa_attention_forward(module, *tensors, scaling=0.3)[0]
    torch.testing.assert_close(attend(module, *tensors, scaling=0.3, **starts)[0], expected)


def test_without_a_batch_it_is_the_usual_attention(module):
    (query, key, value, _), _ = batch()
    expected = sdpa_attention_forward(module, query, key, value, None)[0]
    torch.testing.assert_close(attend(module, query, key, value, None)[0], expected)


def test_what_it_cannot_do_is_refused_not_left_out(module):
    tensors, starts = batch()
    with pytest.raises(ValueError, match="softcap"):
        attend(module, *tensors, softcap=30.0, **starts)


@pytest.mark.parametrize("limit", [0, 10**9], ids=["split", "whole"])
def test_replies_in_company_are_those_alone(monkeypatch, limit):
    monkeypatch.setattr(attention, "_WORTH_SPLITTING", limit)
    model, tokenizer = tiny_llama()
    loaded = LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 512, GenerationParams()))
    params = GenerationParams(max_new_tokens=20, temperature=0)
    with contextlib.closing(BatchedEngine(loaded, EngineSettings())) as engine:

        def stream(text):
            return engine.stream([{"role": "user", "content": text}], params)

        prompts = ["a", "b" * 30, "c" * 90]
        alone = [text_of(stream(prompt)) for prompt in prompts]
        streams = [stream(prompt) for prompt in prompts]
        firsts = [next(stream) for stream in streams]
        assert [text_of([first, *rest]) for first, rest in zip(firsts, streams, strict=True)] == alone


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)
