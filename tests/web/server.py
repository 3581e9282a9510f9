"""A real server on a free port: only real sockets show when a client leaves."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from chat.types import Chunk, Engine, GenerationParams, Prompt
from tests.fakes import FakeEngine
from tests.web.sites import api_routes


class _Noticed(list[int]):
    def __init__(self) -> None:
        super().__init__()
        self.new: queue.Queue[int] = queue.Queue()

    def append(self, number: int) -> None:
        super().append(number)
        self.new.put(number)


@dataclass
class WatchedEngine(FakeEngine):
    """A FakeEngine on whose stopped requests a test can wait.

    It holds on to its generators, so that the garbage collector closes none of them for the server.
    """

    closed: list[int] = field(default_factory=_Noticed)
    generators: list[Generator[Chunk, None, None]] = field(default_factory=list)

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        self.generators.append(super().stream(prompt, params))
        return self.generators[-1]

    def next_closed(self) -> int:
        """Wait for the number of the next request that is stopped. Raises: queue.Empty after ten seconds."""
        return self.closed.new.get(timeout=10)


@contextmanager
def serve(engine: Engine, **settings: object) -> Iterator[str]:
    """Serve the API alone; yield its address."""
    app = FastAPI(routes=api_routes(engine, **settings))
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
