from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from typing import Any

import anyio
import httpx
import pytest
from fastapi import Request
from starlette.types import Message

from chat.types import Chunk, EngineUnavailable, GenerationFailed, GenerationParams, PromptTooLong, QueueFull, Status
from chat.web.streams import StreamedReply, prime, pull, write_text
from tests.fakes import FakeEngine
from tests.web.server import WatchedEngine, serve

MESSAGES = [{"role": "user", "content": "Hi"}]
TEXT = ("/generate", {"text": "Once"})
EVENTS = ("/v1/chat/completions", {"messages": MESSAGES, "stream": True})
WHOLE = ("/v1/chat/completions", {"messages": MESSAGES})


def events(body: str) -> list[str]:
    """Split a stream as the standard says: an empty line ends an event."""
    return [event.removeprefix("data: ") for event in body.split("\n\n") if event]


@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS])
def test_first_piece_arrives_before_the_second_is_made(path, body):
    """H3"""
    second = threading.Event()
    with serve(FakeEngine([["one", second, "two"]])) as url, httpx.stream("POST", url + path, json=body) as response:
        pieces = response.iter_raw()
        first = next(pieces)
        while b"one" not in first:
            first += next(pieces)
        second.set()
        rest = b"".join(pieces)
    assert b"two" not in first
    assert b"two" in rest


@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS])
def test_headers_keep_proxies_from_buffering(path, body):
    """H2, H3"""
    with serve(FakeEngine()) as url:
        headers = httpx.post(url + path, json=body).headers
    assert headers["x-accel-buffering"] == "no"
    assert headers["cache-control"] == "no-cache"
    assert headers["content-type"].endswith("; charset=utf-8")


@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS])
def test_client_that_leaves_in_mid_reply_stops_the_engine(path, body):
    """T5, T6"""
    engine = WatchedEngine([["one", threading.Event(), "two"]])
    with serve(engine) as url:
        with httpx.stream("POST", url + path, json=body) as response:
            next(response.iter_raw())
        assert engine.next_closed() == 0


@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS, WHOLE])
def test_client_that_leaves_while_it_waits_stops_the_engine(path, body):
    """T5, H5"""
    engine = WatchedEngine([[threading.Event(), "late"]])
    with serve(engine) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + path, json=body, timeout=httpx.Timeout(10, read=0.3))
        assert engine.next_closed() == 0


@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS])
def test_client_that_leaves_without_reading_stops_the_engine(path, body):
    """T6: the response is not waiting for the engine then, but for the client."""
    engine = WatchedEngine([["x" * 100_000] * 10_000])
    with serve(engine) as url:
        with httpx.stream("POST", url + path, json=body) as response:
            assert response.status_code == 200
        assert engine.next_closed() == 0


@pytest.mark.parametrize("sent_before", [0, 1])
def test_response_that_cannot_be_sent_stops_the_engine(sent_before):
    """T6: without help of the garbage collector, even if the stream has not begun."""
    engine = WatchedEngine([["one", "two", threading.Event()]])

    async def run() -> None:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            if len(sent) == sent_before:
                raise OSError("The client is gone.")
            sent.append(message)

        request = Request({"type": "http"}, receive=anyio.sleep_forever)
        chunks = pull(engine.stream("Once", GenerationParams()), request, anyio.CapacityLimiter(1))
        reply = StreamedReply(write_text(await prime(chunks)), "text/plain", chunks)
        with pytest.raises(OSError, match="gone"):
            await reply({"type": "http"}, anyio.sleep_forever, send)
        assert engine.next_closed() == 0

    anyio.run(run)


def test_at_most_two_more_chunks_are_taken_after_the_client_left():
    """T5"""
    left, taken = threading.Event(), []

    class Endless(WatchedEngine):
        def _run(self, number: int, pieces: Any) -> Generator[Chunk, None, None]:
            try:
                while True:
                    taken.append(left.is_set())
                    time.sleep(0.2)  # is how long the model takes for a word
                    yield Chunk("word ")
            except GeneratorExit:
                self.closed.append(number)
                raise

    engine = Endless()
    with serve(engine) as url:
        with httpx.stream("POST", url + TEXT[0], json=TEXT[1]) as response:
            next(response.iter_raw())
        left.set()
        engine.next_closed()
    assert taken.count(True) <= 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PromptTooLong(5000, 2048), 400, "context_length_exceeded"),
        (QueueFull("32 people are waiting already."), 503, "queue_full"),
        (GenerationFailed("The model failed."), 500, "generation_failed"),
    ],
)
@pytest.mark.parametrize(("path", "body"), [TEXT, EVENTS, WHOLE])
def test_error_before_the_first_word_has_its_status(path, body, error, status, code):
    """C1: also when the engine only finds out after it was asked, as while it loads."""
    with serve(FakeEngine([[Chunk(), error]])) as url:
        response = httpx.post(url + path, json=body)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"] == str(error)
    assert ("retry-after" in response.headers) == (code == "queue_full")


@pytest.mark.parametrize("error", [GenerationFailed("The model failed."), RuntimeError("secret detail")])
def test_error_after_the_start_is_an_event_and_then_the_end(error):
    """H1, S1: the words so far stay, and what is not fit to show is not shown."""
    with serve(FakeEngine([["one", error]])) as url:
        response = httpx.post(url + EVENTS[0], json=EVENTS[1])
    *_, word, failure, end = events(response.text)
    assert json.loads(word)["choices"][0]["delta"] == {"content": "one"}
    assert json.loads(failure)["error"]["message"].startswith("The ")
    assert "secret" not in response.text
    assert end == "[DONE]"


def test_a_reply_that_comes_is_not_cut_because_the_server_was_found_gone():
    """S1: what one request finds out about the engine is not another's error."""
    engine = FakeEngine()
    with serve(engine) as url:
        httpx.post(url + EVENTS[0], json=EVENTS[1])
        engine.state = Status("failed", error=EngineUnavailable("It is gone."))
        response = httpx.post(url + EVENTS[0], json=EVENTS[1])
    assert "error" not in response.text
    assert " there." in response.text


def test_error_after_the_start_cuts_plain_text():
    """S1: a reply that is not whole never looks whole."""
    with (
        serve(FakeEngine([["one", GenerationFailed("The model failed.")]])) as url,
        httpx.stream("POST", url + TEXT[0], json=TEXT[1]) as response,
    ):
        pieces = response.iter_text()
        assert next(pieces) == "one"
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)


def test_reply_that_the_server_stops_is_an_error():
    with serve(FakeEngine([[Chunk("one"), Chunk(finish_reason="cancelled")]])) as url:
        streamed, whole = (httpx.post(url + path, json=body) for path, body in (EVENTS, WHOLE))
    assert "stopped this reply" in json.loads(events(streamed.text)[-2])["error"]["message"]
    assert whole.status_code == 500


def test_comments_keep_a_long_wait_alive(monkeypatch):
    """H3"""
    monkeypatch.setattr("chat.web.api.PING_S", 0)
    monkeypatch.setattr("chat.web.streams.PING_S", 0)
    ready = threading.Event()
    with (
        serve(FakeEngine([[ready, "one"]])) as url,
        httpx.stream("POST", url + EVENTS[0], json=EVENTS[1]) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == ": ping"
        ready.set()
        rest = [line for line in lines if line.startswith("data: ")]
    assert json.loads(rest[0].removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"
    assert rest[-1] == "data: [DONE]"


class Blocking(FakeEngine):
    """Blocks its reader's thread, in the first `blocked` requests, until `go_on` is set."""

    def __init__(self, blocked: int) -> None:
        super().__init__([*[["late"]] * blocked, ["now"]])
        self.blocked, self.go_on, self.blocking = blocked, threading.Event(), threading.Semaphore(0)

    def _run(self, number: int, pieces: Any) -> Generator[Chunk, None, None]:
        if number < self.blocked:
            self.blocking.release()
            self.go_on.wait()
        yield from super()._run(number, pieces)


def test_nothing_waits_for_a_hundred_blocked_replies():
    """H4: neither /health nor the next reply."""
    engine, texts = Blocking(100), list[str]()
    with serve(engine, queue_size=100) as url:

        def ask() -> None:
            texts.append(httpx.post(url + TEXT[0], json=TEXT[1], timeout=60).text)

        waiting = [threading.Thread(target=ask) for _ in range(100)]
        for thread in waiting:
            thread.start()
        for _ in waiting:
            engine.blocking.acquire()
        assert httpx.get(url + "/health").json()["status"] == "ready"
        ask()
        assert texts == ["now"]
        engine.go_on.set()
        for thread in waiting:
            thread.join()
    assert texts == ["now", *["late"] * 100]


def test_parallel_replies_never_mix():
    """S4, H5, G9"""
    words = [[f"{number}-{word} " for word in range(30)] for number in range(8)]
    replies: list[str] = []
    with serve(FakeEngine(words)) as url:

        def ask() -> None:
            replies.append(httpx.post(url + TEXT[0], json=TEXT[1], timeout=60).text)

        threads = [threading.Thread(target=ask) for _ in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(replies) == ["".join(pieces) for pieces in words]
