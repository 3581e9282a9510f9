"""A real server on a free port: only real sockets show when a client leaves."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from chat.settings import Settings
from chat.types import Engine
from chat.web.api import create_api


class Noticed(list[int]):
    """A list, for FakeEngine.closed, on whose next entry a test can wait."""

    def __init__(self) -> None:
        super().__init__()
        self._new: queue.Queue[int] = queue.Queue()

    def append(self, number: int) -> None:
        super().append(number)
        self._new.put(number)

    def next(self) -> int:
        """Wait for the next entry. Raises: queue.Empty after ten seconds."""
        return self._new.get(timeout=10)


@contextmanager
def serve(engine: Engine, settings: Settings | None = None) -> Iterator[str]:
    """Serve the API alone; yield its address."""
    app = FastAPI(routes=create_api(engine, settings or Settings()).routes)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            # The socket listens already, so that a client connects even before the server has begun to accept.
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
