from __future__ import annotations

import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ConfigDict, TypeAdapter, with_config

from chat.types import Chunk, Usage
from chat.web.replies import ChatWriter
from chat.web.shapes import ChatCompletion, ChatCompletionChunk, Completion
from tests.fakes import INFO, FakeEngine
from tests.web.sites import api_routes

MESSAGES = [{"role": "user", "content": "Hi"}]
THINKING = [[Chunk(thought="Hm"), Chunk(thought="m."), "はい", " 🙂"]]


class Exact(FakeEngine):
    """Yields nothing but its chunks, whose last one is the end."""

    def stream(self, prompt, params):
        yield from self.replies[0]


def strict(shape: type) -> TypeAdapter:
    return TypeAdapter(with_config(ConfigDict(strict=True, extra="forbid"))(shape))


def post(path, engine=None, **fields):
    app = FastAPI(routes=api_routes(engine or FakeEngine()))
    return TestClient(app, "http://127.0.0.1").post(path, json=fields)


def stream(path, engine=None, **fields):
    *events, end = post(path, engine, stream=True, **fields).text.strip("\n").split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_stream_has_role_first_then_pieces_then_an_empty_end():
    """H1, S11"""
    events = stream("/v1/chat/completions", messages=MESSAGES)
    for event in events:
        strict(ChatCompletionChunk).validate_python(event)
        assert event["usage"] is None
    first, *pieces, last = [event["choices"][0]["delta"] for event in events]
    assert first == {"role": "assistant", "content": ""}
    assert "".join(piece.pop("content") for piece in pieces) == "Hello there."
    assert not any([*pieces, last])
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["stop"]
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1


def test_each_chunk_is_a_piece_of_its_own():
    """H1, S13: chunks are only joined before they are written, where the server falls behind."""
    writer = ChatWriter(lambda: INFO)
    chunks = [Chunk(thought="Hm"), Chunk(thought="m."), Chunk("Hello"), Chunk(" there."), Chunk(finish_reason="stop")]
    choices = [event["choices"][0] for chunk in chunks for event in writer.events(chunk)]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"reasoning_content": "m."},
        {"content": "Hello"},
        {"content": " there."},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, None, None, "stop"]


def test_last_chunk_that_still_has_text_gives_a_piece_and_an_empty_end():
    """H1"""
    *_, piece, end = stream("/v1/chat/completions", Exact([[Chunk("all", finish_reason="length")]]), messages=MESSAGES)
    assert piece["choices"][0]["delta"] == {"content": "all"}
    assert piece["choices"][0]["finish_reason"] is None
    assert end["choices"][0]["delta"] == {}
    assert end["choices"][0]["finish_reason"] == "length"


def test_thought_is_reasoning_content():
    """S13"""
    events = stream("/v1/chat/completions", FakeEngine(THINKING), messages=MESSAGES)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hmm."
    assert "".join(delta.get("content", "") for delta in deltas) == "はい 🙂"
    whole = post("/v1/chat/completions", FakeEngine(THINKING), messages=MESSAGES).json()
    assert whole["choices"][0]["message"] == {
        "role": "assistant",
        "content": "はい 🙂",
        "reasoning_content": "Hmm.",
    }


def test_usage_comes_last_when_asked_for():
    """H1"""
    *events, last = stream("/v1/chat/completions", messages=MESSAGES, stream_options={"include_usage": True})
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_usage_tells_cached_tokens_and_messages_left_out():
    usage = Usage(100, 60, 5, messages_left_out=2)
    engine = Exact([[Chunk("a", finish_reason="stop", usage=usage)]])
    counts = post("/v1/chat/completions", engine, messages=MESSAGES).json()["usage"]
    assert counts["prompt_tokens_details"] == {"cached_tokens": 60}
    assert counts["total_tokens"] == 105
    assert counts["messages_left_out"] == 2


@pytest.mark.parametrize(
    ("path", "prompt", "shape"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}, ChatCompletion),
        ("/v1/completions", {"prompt": "Hi"}, Completion),
    ],
)
def test_whole_reply_has_openais_shape(path, prompt, shape):
    strict(shape).validate_python(post(path, **prompt).json())


def test_completions_stream_text():
    events = stream("/v1/completions", prompt="Hi", stream_options={"include_usage": True})
    for event in events:
        strict(Completion).validate_python(event)
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == "Hello there."
    assert events[-1]["usage"]["total_tokens"] == 9


@pytest.mark.parametrize("stream", [True, False])
def test_json_is_ascii(stream):
    """H2: no proxy's charset and no line splitting can break it."""
    odd = "日本 🙂 \u2028 \x85 \r\n"
    response = post("/v1/chat/completions", FakeEngine([[odd]]), messages=MESSAGES, stream=stream)
    assert response.content.isascii()
    assert json.dumps(odd)[1:-1] in response.text


def test_plain_text_is_utf8_and_exact():
    """H2, G5"""
    odd = "日本 🙂 \u2028 \x85 \r\n\t <b>"
    response = post("/generate", FakeEngine([list(odd)]), text="Hi")
    assert response.content.decode("utf-8") == odd
