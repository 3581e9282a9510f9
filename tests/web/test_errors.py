from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from chat.types import (
    ChatError,
    EngineUnavailable,
    GenerationFailed,
    InvalidRequest,
    ModelLoadError,
    ModelNotFound,
    OutOfMemory,
    PromptTooLong,
    QueueFull,
)
from chat.web.fields import MAX_BODY_BYTES, MAX_MESSAGES, MAX_TEXT
from tests.fakes import FakeEngine
from tests.web.sites import api_routes

JSON = {"Content-Type": "application/json"}


class Refusing(FakeEngine):
    """Fails when it is asked."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def stream(self, prompt, params):
        raise self.error


def client(engine=None):
    app = FastAPI(routes=api_routes(engine or FakeEngine()))
    return TestClient(app, "http://127.0.0.1")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("The template refuses this.", "messages"), 400, None),
        (PromptTooLong(5000, 2048), 400, "context_length_exceeded"),
        (QueueFull("32 people are waiting already."), 503, "queue_full"),
        (EngineUnavailable("The server is down."), 503, "engine_unavailable"),
        (ModelLoadError("The download was cut."), 503, "model_not_loaded"),
        (ModelNotFound("There is no such model."), 503, "model_not_loaded"),
        (OutOfMemory("No memory is left."), 503, "out_of_memory"),
        (GenerationFailed("The model made NaN."), 500, "generation_failed"),
        (ChatError("Something else."), 500, None),
    ],
)
def test_each_error_has_its_status_and_words(error, status, code):
    """C4, H5: a client's mistake is 400 with the reason, a full line 503 with a time to come back."""
    response = client(Refusing(error)).post("/generate", json={"text": "a"})
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"] == str(error)
    assert ("retry-after" in response.headers) == isinstance(error, QueueFull | OutOfMemory | EngineUnavailable)


def test_a_mistake_of_ours_is_logged_and_not_shown(caplog):
    response = client(Refusing(KeyError("secret"))).post("/generate", json={"text": "a"})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "KeyError" in caplog.text


@pytest.mark.parametrize(
    ("content", "headers", "words"),
    [
        (b"", JSON, "JSON object"),
        (b"{", JSON, "not valid JSON"),
        (b"[]", JSON, "JSON object"),
        (b'{"text": "\xff"}', JSON, "UTF-8"),
        (b"[" * 100_000, JSON, "JSON"),
        (b'{"text": "a"}', {"Content-Type": "text/plain"}, "application/json"),
        (b'{"text": "a", "\\ud800": 1}', JSON, "JSON"),
        (b'{"text": "a", "temperature": NaN}', JSON, "temperature"),
    ],
)
def test_body_that_cannot_be_read_is_explained(content, headers, words):
    response = client().post("/generate", content=content, headers=headers)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


def test_large_body_is_refused_whether_its_length_is_announced_or_not():
    large = b'{"text": "' + b"x" * MAX_BODY_BYTES + b'"}'
    for content in (large, iter([large[:1000], large[1000:]])):
        response = client().post("/generate", content=content, headers=JSON)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


def test_large_fields_are_refused_without_being_repeated():
    long_text = client().post("/generate", json={"text": "x" * (MAX_TEXT + 1)})
    many = [{"role": "user", "content": "a"}] * (MAX_MESSAGES + 1)
    many_messages = client().post("/v1/chat/completions", json={"messages": many})
    for response, field in ((long_text, "text"), (many_messages, "messages")):
        assert response.status_code == 400
        assert response.json()["error"]["param"] == field
        assert len(response.text) < 500
