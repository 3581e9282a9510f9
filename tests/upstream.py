"""A scripted OpenAI-compatible server on a real port: says what it is told to, remembers what it was asked.

`python -m tests.upstream PORT RATE TOKENS` serves one that answers everybody with TOKENS pieces at RATE a second.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODELS = [{"id": "big/model", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]


@dataclass(frozen=True)
class Refusal:
    """An answer that is no reply."""

    status: int
    error: object = "No."
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Thought:
    """A piece of a thought that the server itself tells apart, under the given name."""

    text: str
    name: str = "reasoning_content"


class Cut:
    """The place where the connection breaks."""


class End:
    """The place where the stream ends without a finish_reason and without an end mark."""


Piece = str | Thought | dict[str, Any] | threading.Event | float | type[Cut] | type[End]
Reply = Sequence[Piece] | Refusal


@dataclass
class Upstream:
    """Answer the n-th request with the n-th of `replies`, the last one again after that.

    A piece is a text, a Thought, a whole event, an Event to wait for, seconds to wait, or Cut or End.
    """

    replies: Sequence[Reply] = (("Hello", " there."),)
    models: Sequence[dict[str, Any]] | Refusal = tuple(MODELS)
    count: Callable[[dict[str, Any]], int] | None = None
    """Counts the tokens of a body for /tokenize, if there is one."""
    token_texts: Sequence[str] = ()
    """What /tokenize takes each prompt for."""
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 7, "completion_tokens": 2})
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    """Numbers of the requests whose client left before the end."""
    someone_left: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Upstream:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        self._server = _Server(uvicorn.Config(self.app(), log_level="critical", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        assert self._server.ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._list_models),
                Route("/v1/chat/completions", self._reply, methods=["POST"]),
                Route("/v1/completions", self._reply, methods=["POST"]),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/left", self._count_left),
            ]
        )

    async def _list_models(self, request: Request) -> Response:
        if isinstance(self.models, Refusal):
            return _refuse(self.models)
        return JSONResponse({"object": "list", "data": list(self.models)})

    async def _count_left(self, request: Request) -> Response:
        return JSONResponse(len(self.left))

    async def _tokenize(self, request: Request) -> Response:
        if self.count is None:
            return JSONResponse({"detail": "Not Found"}, 404)
        body = await request.json()
        return JSONResponse({"count": self.count(body), "token_strs": self.token_texts, "tokens": []})

    async def _reply(self, request: Request) -> Response:
        body = await request.json()
        number = len(self.asked)
        self.asked.append(body)
        self.paths.append(request.url.path)
        self.headers.append(request.headers)
        reply = self.replies[min(number, len(self.replies) - 1)]
        if isinstance(reply, Refusal):
            return _refuse(reply)
        return StreamingResponse(self._write(number, reply), media_type="text/event-stream")

    async def _write(self, number: int, pieces: Sequence[Piece]) -> AsyncIterator[str]:
        is_chat = "messages" in self.asked[number]
        yield _event({"role": "assistant", "content": ""} if is_chat else "")
        try:
            for piece in pieces:
                if piece is Cut:
                    raise ConnectionAbortedError
                if piece is End:
                    return
                if isinstance(piece, threading.Event):
                    while not piece.is_set():
                        await asyncio.sleep(0.01)
                elif isinstance(piece, float):
                    await asyncio.sleep(piece)
                elif isinstance(piece, Thought):
                    yield _event({piece.name: piece.text})
                elif isinstance(piece, str):
                    yield _event({"content": piece} if is_chat else piece)
                else:
                    yield _data(piece)
        except asyncio.CancelledError:
            self.left.append(number)
            self.someone_left.set()
            raise
        yield _event({} if is_chat else "", "stop")
        if self.usage and "stream_options" in self.asked[number]:
            yield _data({"choices": [], "usage": self.usage})
        yield "data: [DONE]\n\n"


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _refuse(refusal: Refusal) -> Response:
    error = refusal.error
    body = error if isinstance(error, dict) else {"error": {"message": error, "type": "x", "code": refusal.status}}
    return JSONResponse(body, refusal.status, dict(refusal.headers))


def _event(delta: dict[str, str] | str, finish_reason: str | None = None) -> str:
    choice = {"text": delta} if isinstance(delta, str) else {"delta": delta}
    return _data({"choices": [{"index": 0, **choice, "finish_reason": finish_reason}]})


def _data(event: object) -> str:
    # As vLLM does, not escaped to ASCII.
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


def main(port: str, rate: str, tokens: str) -> None:
    """Serve until killed; print a line when ready."""
    reply = [piece for number in range(int(tokens)) for piece in (1 / float(rate), f"word{number} ")]
    with Upstream([reply], port=int(port)) as upstream:
        sys.stdout.write(f"{upstream.port}\n")
        sys.stdout.flush()
        upstream._thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
