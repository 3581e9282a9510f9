"""An engine on a scripted server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from chat.engine.remote import RemoteEngine, Server
from chat.reply import Reply
from chat.settings import EngineSettings
from chat.types import Chunk, GenerationParams, Message, Status
from tests.upstream import Upstream

Connect: TypeAlias = Callable[..., RemoteEngine]


NONE = GenerationParams()


def ask(text: str = "Hello?") -> list[Message]:
    return [{"role": "user", "content": text}]


def read(chunks: Iterable[Chunk], reply: Reply | None = None) -> Reply:
    """Return the whole reply; `reply` keeps what had come when an error was raised."""
    reply = reply or Reply()
    for chunk in chunks:
        reply.add(chunk)
    return reply


def until_text(stream: Generator[Chunk, None, None]) -> str:
    return next(chunk.text for chunk in stream if chunk.text)


def settle(engine: RemoteEngine, state: str) -> Status:
    """Return the status once it is `state`."""
    pause = threading.Event()
    for _ in range(1000):
        if (status := engine.status()).state == state:
            return status
        pause.wait(0.02)
    raise AssertionError(status)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that makes an engine for a server or an address; all are closed at the end."""
    with ExitStack() as stack:

        def connect(
            upstream: Upstream | str, key: str = "", server: dict[str, Any] | None = None, **settings: Any
        ) -> RemoteEngine:
            url = upstream if isinstance(upstream, str) else stack.enter_context(upstream).url
            engine = RemoteEngine(Server(url, key, **(server or {})), EngineSettings(**settings))
            stack.callback(engine.close)
            return engine

        yield connect
