"""An engine on a scripted server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from chat.engine.remote import RemoteEngine, Server
from chat.settings import EngineSettings
from chat.types import Message
from tests.upstream import Upstream

Connect: TypeAlias = Callable[..., RemoteEngine]


def ask(text: str = "Hello?") -> list[Message]:
    return [{"role": "user", "content": text}]


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
