"""A reply's tokens become chunks: special tokens hidden, thoughts apart, errors passed on, always an end."""

import copy
import threading

import pytest
import torch
from tokenizers import AddedToken

from chat.engine.loading import LoadedModel
from chat.engine.preparing import Preparer
from chat.types import GenerationFailed, GenerationParams, ModelInfo
from tests.engine.models import TURN_END, byte_tokenizer, llama_for, sentencepiece_tokenizer

HARMONY = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"]


def request_for(tokenizer, **params):
    model = llama_for(tokenizer)
    info = ModelInfo("tiny", "cpu", "float32", 512, GenerationParams(max_new_tokens=100))
    preparer = Preparer(LoadedModel(model, tokenizer, info))
    return preparer.prepare([{"role": "user", "content": "Hello"}], GenerationParams(**params))


def stream(request, text, tokenizer):
    put(request, text, tokenizer)
    request.streamer.end()
    return list(request.streamer)


def put(request, text, tokenizer):
    """Put a reply's tokens as generate does: the prompt first, then one at a time."""
    request.streamer.put(torch.tensor([[1, 2, 3]]))
    for id_ in tokenizer.encode(text, add_special_tokens=False):
        request.streamer.put(torch.tensor([id_]))


def parts(chunks):
    return "".join(chunk.thought for chunk in chunks), "".join(chunk.text for chunk in chunks)


@pytest.fixture(params=[byte_tokenizer, sentencepiece_tokenizer])
def tokenizer(request):
    return request.param()


def test_the_prompt_is_not_shown_and_the_first_token_is(tokenizer):
    """S11"""
    request = request_for(tokenizer)
    assert parts(stream(request, "Hello there", tokenizer)) == ("", "Hello there")
    assert request.streamer.token_ids == tokenizer.encode("Hello there", add_special_tokens=False)


def test_end_marks_are_hidden(tokenizer):
    """S16"""
    assert parts(stream(request_for(tokenizer), f"Hello{TURN_END}", tokenizer)) == ("", "Hello")


def test_an_end_of_turn_that_only_the_template_names_ends_a_reply():
    """S16"""
    tokenizer = byte_tokenizer()
    model = llama_for(tokenizer)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    preparer = Preparer(LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 512, GenerationParams())))
    assert preparer.end_ids == {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(TURN_END)}
    assert set(model.generation_config.eos_token_id) == preparer.end_ids


def test_every_chunk_has_text(tokenizer):
    assert all(chunk.text for chunk in stream(request_for(tokenizer), "Hello 👋🏽 world", tokenizer))


def test_a_thought_comes_apart_from_its_answer(tokenizer):
    """S13 G3"""
    chunks = stream(request_for(tokenizer), "<think>\nLet me see.\n</think>\n\nParis <think>", tokenizer)
    assert parts(chunks) == ("Let me see.", "Paris <think>")


def test_channel_marks_are_read_and_never_shown():
    """S14: they are special tokens, but hiding them would leave the channel's name."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in HARMONY], special_tokens=True)
    text = "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y <analysis><|return|>"
    assert parts(stream(request_for(tokenizer), text, tokenizer)) == ("x", "y <analysis>")


def test_a_special_token_and_its_neighbours_are_told_apart():
    """S15"""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("<|tool|>", special=True)], special_tokens=True)
    assert parts(stream(request_for(tokenizer), "123<|tool|>45", tokenizer)) == ("", "12345")


def test_a_stop_text_counts_in_the_answer_only(tokenizer):
    """S12"""
    request = request_for(tokenizer, stop=("Paris",))
    chunks = stream(request, "<think>Is it Paris?</think>It is Paris.", tokenizer)
    assert parts(chunks) == ("Is it Paris?", "It is ")
    assert request.streamer.stop_text_found
    assert request.finish_reason(()) == "stop"


def test_an_error_reaches_the_reader_behind_the_text(tokenizer):
    """S1"""
    request = request_for(tokenizer)
    put(request, "Hello <|im", tokenizer)
    request.streamer.fail(GenerationFailed("no more"))
    request.streamer.end()
    chunks = []
    with pytest.raises(GenerationFailed, match="no more"):
        chunks.extend(request.streamer)
    assert parts(chunks) == ("", "Hello <|im")


def test_nothing_yet_is_an_empty_chunk_and_no_error(tokenizer):
    """S2"""
    request = request_for(tokenizer)
    chunk = next(request.streamer)
    assert (chunk.text, chunk.thought, chunk.finish_reason) == ("", "", None)


def test_half_a_character_at_the_length_limit_ends_normally():
    """S7"""
    tokenizer = byte_tokenizer()
    request = request_for(tokenizer)
    request.streamer.put(torch.tensor([[1]]))
    for letter in ("a", "ð"):
        request.streamer.put(torch.tensor([tokenizer.get_vocab()[letter]]))
    request.streamer.end()
    assert parts(list(request.streamer)) == ("", "a\ufffd")
    assert request.finish_reason(()) == "length"


def test_usage_counts_tokens_not_chunks(tokenizer):
    request = request_for(tokenizer)
    stream(request, f"Hello{TURN_END}", tokenizer)
    assert request.usage().completion_tokens == len(tokenizer.encode(f"Hello{TURN_END}", add_special_tokens=False))


def test_a_streamer_belongs_to_one_request(tokenizer):
    """S4"""
    first, second = request_for(tokenizer), request_for(tokenizer)
    threads = [
        threading.Thread(target=put, args=(request, text, tokenizer))
        for request, text in ((first, "aaaa " * 50), (second, "bbbb " * 50))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for request in (first, second):
        request.streamer.end()
    assert set(parts(list(first.streamer))[1]) == set("a ")
    assert set(parts(list(second.streamer))[1]) == set("b ")
    with pytest.raises(TypeError):
        copy.deepcopy(first.streamer)
