"""What visitors do whose client is no client: bytes on a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.hostile.api_visits import CHAT, chat
from tests.hostile.visitor import KEY, Unexpected, Visitor

SMALL = 4096


@asynccontextmanager
async def dial(visitor: Visitor) -> AsyncIterator[socket.socket]:
    """Open a connection that takes in little at once; half of them end with a reset."""
    loop = asyncio.get_running_loop()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        line.setblocking(False)
        await loop.sock_connect(line, visitor.authority)
        yield line
        if visitor.mind.random() < 0.5:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def write_request(visitor: Visitor, question: str) -> bytes:
    body = json.dumps(chat(question)).encode()
    lines = [
        f"POST {CHAT} HTTP/1.1",
        "Host: localhost",
        f"X-Forwarded-For: {visitor.address}",
        f"Authorization: Bearer {KEY}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def reads_slowly(visitor: Visitor) -> None:
    """A few bytes a second of what comes all at once, then away."""
    loop = asyncio.get_running_loop()
    async with dial(visitor) as line:
        await loop.sock_sendall(line, write_request(visitor, visitor.mind.choice(["flood", "Say 200 words"])))
        for _ in range(visitor.mind.randint(2, 12)):
            await asyncio.wait_for(loop.sock_recv(line, 10), 90)
            await asyncio.sleep(1)
    visitor.note("rude: read slowly")


async def sends_half_a_request(visitor: Visitor) -> None:
    request = write_request(visitor, "Say 20 words")
    async with dial(visitor) as line:
        await asyncio.get_running_loop().sock_sendall(line, request[: visitor.mind.randrange(1, len(request))])
        await asyncio.sleep(visitor.mind.uniform(0, 8))
    visitor.note("rude: sent half a request")


async def leaves_at_once(visitor: Visitor) -> None:
    async with dial(visitor) as line:
        await asyncio.get_running_loop().sock_sendall(line, write_request(visitor, "Say 300 words"))
        await asyncio.sleep(visitor.mind.uniform(0, 0.3))
    visitor.note("rude: asked and hung up")


async def speaks_no_http(visitor: Visitor) -> None:
    loop = asyncio.get_running_loop()
    async with dial(visitor) as line:
        await loop.sock_sendall(line, visitor.mind.randbytes(200) + b"\r\n\r\n")
        answer = await asyncio.wait_for(loop.sock_recv(line, SMALL), 90)
    if b" 400 " not in answer:
        raise Unexpected(f"no HTTP: answered {answer!r}")
    visitor.note("rude: spoke no HTTP, refused with 400")
