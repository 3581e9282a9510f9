"""The official client is the judge of OpenAI's shapes."""

from __future__ import annotations

import threading

import openai
import pytest

from chat.types import Chunk, GenerationFailed, PromptTooLong, QueueFull
from tests.fakes import FakeEngine
from tests.web.server import WatchedEngine, serve

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def connect():
    """Return a function that serves an engine and connects a client to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        servers, clients = [], []

        def start(engine: FakeEngine, key: str = "none", **settings: object) -> openai.OpenAI:
            servers.append(serve(engine, **settings))
            clients.append(openai.OpenAI(base_url=servers[-1].__enter__() + "/v1", api_key=key, max_retries=0))
            return clients[-1]

        yield start
        for client in clients:
            client.close()
        for server in servers:
            server.__exit__(None, None, None)


def test_reply_streams(connect):
    """H1"""
    client = connect(FakeEngine([["Hel", "lo 🙂", " 日本"]]))
    stream = client.chat.completions.create(
        model="fake/model", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    first, *pieces, end, counts = list(stream)
    assert first.choices[0].delta.role == "assistant"
    assert "".join(piece.choices[0].delta.content for piece in pieces) == "Hello 🙂 日本"
    assert end.choices[0].finish_reason == "stop"
    assert counts.usage.completion_tokens == 3


def test_pieces_arrive_one_by_one(connect):
    """H3"""
    second = threading.Event()
    client = connect(FakeEngine([["one", second, "two"]]))
    stream = client.chat.completions.create(model="model", messages=MESSAGES, stream=True)
    texts = (chunk.choices[0].delta.content for chunk in stream)
    assert [next(texts), next(texts)] == ["", "one"]
    second.set()
    assert "two" in list(texts)


def test_whole_reply_can_be_sent_back_as_it_is(connect):
    engine = FakeEngine([[Chunk(thought="Hm."), "Yes."]])
    client = connect(engine)
    message = client.chat.completions.create(model="fake/model", messages=MESSAGES).choices[0].message
    assert message.content == "Yes."
    assert message.reasoning_content == "Hm."
    client.chat.completions.create(model="fake/model", messages=[*MESSAGES, message, {"role": "user", "content": "?"}])
    assert engine.prompts[1] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes.", "thought": "Hm."},
        {"role": "user", "content": "?"},
    ]


def test_text_is_continued(connect):
    client = connect(FakeEngine())
    assert client.completions.create(model="fake/model", prompt="Hi").choices[0].text == "Hello there."
    stream = client.completions.create(model="fake/model", prompt="Hi", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Hello there."


def test_models_are_listed(connect):
    client = connect(FakeEngine())
    assert [model.id for model in client.models.list()] == ["fake/model"]
    assert client.models.retrieve("fake/model").owned_by == "fake"


def test_leaving_a_stream_stops_the_engine(connect):
    """T5"""
    engine = WatchedEngine([["one", threading.Event()]])
    with connect(engine).chat.completions.create(model="model", messages=MESSAGES, stream=True) as stream:
        next(stream)
    assert engine.next_closed() == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PromptTooLong(5000, 2048), openai.BadRequestError),
        (QueueFull("Full."), openai.InternalServerError),
        (GenerationFailed("It failed."), openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_before_the_start_are_the_clients_own_exceptions(connect, error, kind, stream):
    """C1"""
    with pytest.raises(kind, match=str(error)[:10]) as caught:
        connect(FakeEngine([[error]])).chat.completions.create(model="model", messages=MESSAGES, stream=stream)
    assert caught.value.body["message"] == str(error)


def test_error_in_mid_stream_raises_after_the_words_so_far(connect):
    """H1, S1"""
    client = connect(FakeEngine([["one", GenerationFailed("It failed.")]]))
    stream = client.chat.completions.create(model="model", messages=MESSAGES, stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one"]
    with pytest.raises(openai.APIError, match="It failed"):
        next(stream)


def test_comments_between_events_do_no_harm(connect, monkeypatch):
    monkeypatch.setattr("chat.web.api.PING_S", 0)
    monkeypatch.setattr("chat.web.streams.PING_S", 0)
    client = connect(FakeEngine([[Chunk(), Chunk(), "one", Chunk(), "two"]]))
    stream = client.chat.completions.create(model="model", messages=MESSAGES, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "onetwo"


def test_key_is_the_clients_key(connect):
    assert connect(FakeEngine(), key="secret", api_key=["secret"]).models.list().data
    with pytest.raises(openai.AuthenticationError, match="API key"):
        connect(FakeEngine(), key="wrong", api_key=["secret"]).models.list()


def test_unknown_model_is_the_clients_not_found(connect):
    with pytest.raises(openai.NotFoundError, match="fake/model"):
        connect(FakeEngine()).chat.completions.create(model="gpt-4o", messages=MESSAGES)
