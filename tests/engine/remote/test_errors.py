from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import httpx2
import pytest

from chat.engine.remote.errors import Overloaded, WindowExceeded, explain_response
from chat.types import ChatError, GenerationFailed, InvalidRequest

BODY = {"model": "m", "messages": [], "stream": True, "temperature": 1, "max_tokens": 5, "stream_options": {}}


def explain(status: int, body: Any = None, text: str | None = None, **headers: str) -> ChatError:
    request = httpx2.Request("POST", "http://host/v1/chat/completions")
    content = {"text": text} if text is not None else {"json": body}
    return explain_response(httpx2.Response(status, headers=headers, request=request, **content), BODY, "host")


@pytest.mark.parametrize(
    "reason",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "the request exceeds the available context size, try increasing it",
        "The decoder prompt (length 5000) is longer than the maximum model length of 2048.",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096: exceeds max_total_tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_each_servers_words_for_a_full_window_are_known(reason: str) -> None:
    """C1"""
    assert isinstance(explain(400, {"error": {"message": reason}}), WindowExceeded)


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error"])
def test_the_codes_for_a_full_window_are_known(code: str) -> None:
    """C1"""
    assert isinstance(explain(400, {"error": {"message": "No.", "code": code}}), WindowExceeded)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Too hot."}},
        {"error": "Too hot."},
        {"message": "Too hot.", "object": "error"},
        {"detail": "Too hot."},
        {"detail": [{"msg": "Too hot."}]},
        "Too hot.",
    ],
)
def test_the_servers_own_words_are_passed_on_from_any_shape(body: Any) -> None:
    error = explain(422, body)
    assert isinstance(error, InvalidRequest)
    assert "Too hot." in str(error)


@pytest.mark.parametrize("text", ["", "<html>" + "x" * 10_000])
def test_an_answer_that_is_no_json_makes_a_short_text(text: str) -> None:
    error = explain(500, text=text)
    assert isinstance(error, GenerationFailed)
    assert "500" in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("reason", "param"),
    [
        ("temperature must be at most 2", "temperature"),
        ("Unrecognized argument: stream_options", "stream_options"),
        ("The stream broke", None),
        ("System role not supported", "system"),
    ],
)
def test_the_field_at_fault_is_named(reason: str, param: str | None) -> None:
    error = explain(400, {"error": {"message": reason}})
    assert isinstance(error, InvalidRequest)
    assert error.param == param


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    seconds, date, nonsense = (
        explain(503, None, **{"retry-after": value})
        for value in ("12", formatdate(time.time() + 100, usegmt=True), "soon")
    )
    assert isinstance(seconds, Overloaded)
    assert seconds.retry_after == 12
    assert isinstance(date, Overloaded)
    assert date.retry_after is not None
    assert 90 < date.retry_after <= 100
    assert isinstance(nonsense, Overloaded)
    assert nonsense.retry_after is None
