"""An engine's chunks on the event loop, and the two kinds of streams made of them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing
from typing import TypeAlias

from anyio import CapacityLimiter
from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from chat.reply import Reply
from chat.types import Chunk, GenerationFailed
from chat.web.errors import as_chat_error, error_body
from chat.web.pump import Pump
from chat.web.replies import Writer

Chunks: TypeAlias = AsyncGenerator[Chunk, None]

PING_S = 10.0
_LOOK_S = 0.1  # how often to look for the client; it costs as much as a few words
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # no proxy may hold a stream back


async def pull(chunks: Generator[Chunk, None, None], request: Request, limiter: CapacityLimiter) -> Chunks:
    """Yield the chunks without blocking the event loop; end early if the client leaves. Closes `chunks`."""
    looked_at = float("-inf")
    async with aclosing(Pump(chunks).run(limiter)) as pumped:
        async for chunk in pumped:
            if (now := time.monotonic()) - looked_at >= _LOOK_S:
                if await request.is_disconnected():
                    return
                looked_at = now
            if chunk.finish_reason == "cancelled":
                raise GenerationFailed("The server stopped this reply. Send the request again.")
            yield chunk


async def join(chunks: Chunks) -> Reply:
    """Return the whole reply; it has no finish_reason if the client left."""
    reply = Reply()
    async for chunk in chunks:
        reply.add(chunk)
    return reply


async def prime(chunks: Chunks, seconds: float = float("inf")) -> Chunks:
    """Wait until the first chunk that says something, at most about `seconds`, then return all from there.

    What fails up to here still has its status code. Raises: ChatError.
    """
    deadline = time.monotonic() + seconds
    async for chunk in chunks:
        if _is_news(chunk) or time.monotonic() > deadline:
            return _chain(chunk, chunks)
    return chunks


async def write_text(chunks: Chunks) -> AsyncGenerator[str, None]:
    """Yield the text as it comes. An error cuts the connection, the only sign of it that plain text has."""
    async for chunk in chunks:
        if chunk.text:
            yield chunk.text


async def write_events(chunks: Chunks, writer: Writer) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events, with a comment at least every PING_S; an error is an event, too."""
    spoke_at = float("-inf")
    try:
        async for chunk in chunks:
            now = time.monotonic()
            if _is_news(chunk):
                for event in writer.events(chunk):
                    yield event_data(event)
            elif now - spoke_at >= PING_S:
                yield format_sse_event(comment="ping")
            else:
                continue
            spoke_at = now
    except Exception as error:
        yield event_data(error_body(as_chat_error(error)))
    yield format_sse_event(data_str="[DONE]")


def event_data(value: Mapping[str, object]) -> bytes:
    """Return one event. Its JSON is ASCII, so it cannot break at any client's idea of a line end."""
    return format_sse_event(data_str=json.dumps(value, separators=(",", ":")))


class StreamedReply(StreamingResponse):
    """A response that closes the engine's chunks however it ends, even if it never began."""

    def __init__(self, body: AsyncGenerator[str | bytes, None], media_type: str, chunks: Chunks) -> None:
        super().__init__(body, headers=HEADERS, media_type=media_type)
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with aclosing(self._chunks):
            await super().__call__(scope, receive, send)


def _is_news(chunk: Chunk) -> bool:
    return bool(chunk.text or chunk.thought or chunk.finish_reason)


async def _chain(first: Chunk, rest: Chunks) -> Chunks:
    yield first
    async for chunk in rest:
        yield chunk
