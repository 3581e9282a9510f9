"""Visitors who read a reply as fast as it comes, at the least cost for this process."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.hostile.api_visits import CHAT, chat
from tests.hostile.page_visits import PANEL
from tests.hostile.visitor import KEY

PIECE = b"word "  # where the app falls behind, it sends several at once


@dataclass
class Reader:
    """One visitor at `url`, who comes from `address`; leaves in mid-reply when `leaves` is set."""

    url: httpx.URL
    address: str
    leaves: asyncio.Event | None = None
    gaps: list[float] = field(default_factory=list)
    pieces: int = 0
    first_s: float = 0.0
    is_whole: bool = False

    async def visit(self, words: int, timeout: float) -> None:
        """Ask for so many words, and read them."""
        raise NotImplementedError

    @asynccontextmanager
    async def _connect(self):
        reader, writer = await asyncio.open_connection(self.url.host, self.url.port, local_addr=(self.address, 0))
        try:
            yield reader, writer
        finally:
            writer.close()

    def _write_request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        data = json.dumps(body).encode() if body else b""
        head = f"{method} {self.url.path.rstrip('/')}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        return f"{head}Authorization: Bearer {KEY}\r\n{kind if body else ''}\r\n".encode() + data

    async def _read(self, reader: asyncio.StreamReader, end: bytes) -> None:
        asked = last = time.perf_counter()
        while not (self.leaves and self.leaves.is_set()):
            data = await reader.read(2**16)
            self.is_whole = self.is_whole or end in data
            now, pieces = time.perf_counter(), data.partition(end)[0].count(PIECE)
            if pieces:
                self.first_s = self.first_s or now - asked
                self.gaps += [now - last] if self.pieces else []
                self.pieces, last = self.pieces + pieces, now
            if not data or self.is_whole:
                return


class ApiReader(Reader):
    """A client of the HTTP API."""

    async def visit(self, words: int, timeout: float) -> None:
        async with self._connect() as (reader, writer):
            writer.write(self._write_request("POST", CHAT, chat(f"Say {words} words")))
            await asyncio.wait_for(self._read(reader, b"[DONE]"), timeout)


class PageReader(Reader):
    """An open page."""

    functions: Mapping[str, int] = {}

    async def visit(self, words: int, timeout: float) -> None:
        session = secrets.token_hex(6)
        async with self._connect() as (reader, writer):
            data = [f"Say {words} words", None, *PANEL]
            body = {"data": data, "fn_index": self.functions["submit"], "session_hash": session}
            writer.write(self._write_request("POST", "/gradio_api/queue/join", body))
            answer = await asyncio.wait_for(reader.read(), timeout)
            if b" 200 " not in answer.partition(b"\r\n")[0]:
                raise RuntimeError(answer.decode())
        async with self._connect() as (reader, writer):
            writer.write(self._write_request("GET", f"/gradio_api/queue/data?session_hash={session}"))
            await asyncio.wait_for(self._read(reader, b"process_completed"), timeout)
