"""A server in OpenAI's shape that pours words into any number of connections at next to no cost.

`python -m tests.hostile.faucet PORT RATE`: the question says how much, as `40 words`; `flood` pours all at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable

MODEL = "big/model"
HEAD = "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
FLOOD_WORDS = 40_000


def event(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


WORD, MANY_WORDS = event("word "), event("word " * 400)
END = event("", "stop") + b"data: [DONE]\n\n"


class Faucet:
    """`left` counts the clients that went away before the end."""

    def __init__(self, rate: float) -> None:
        self._interval, self.left = 1 / rate, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            await self._answer(head.split(b" ")[1].decode(), body, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers: dict[str, Callable[[], object]] = {
            "/v1/models": lambda: {"object": "list", "data": [{"id": MODEL, "max_model_len": 100_000}]},
            "/left": lambda: self.left,
        }
        if path.endswith("/completions"):
            writer.write(HEAD.format(status=200, kind="text/event-stream").encode())
            await (self._flood(writer) if b"flood" in body else self._pour(count_words(body), reader, writer))
        elif path in answers:
            writer.write(
                HEAD.format(status=200, kind="application/json").encode() + json.dumps(answers[path]()).encode()
            )
        else:
            writer.write(HEAD.format(status=404, kind="application/json").encode() + b"{}")
        await writer.drain()

    async def _pour(self, words: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        next_at = clock()
        for _ in range(words):
            next_at += self._interval
            await asyncio.sleep(next_at - clock())
            if reader.at_eof() or writer.is_closing():
                self.left += 1
                return
            writer.write(WORD)
        writer.write(END)

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        for _ in range(FLOOD_WORDS // 400):
            writer.write(MANY_WORDS)
            await writer.drain()
        writer.write(END)


def count_words(body: bytes) -> int:
    """Return what the newest question asks for."""
    return int(re.findall(rb"(\d+) words", body)[-1])


async def main(port: str, rate: str) -> None:
    """Serve until killed; print the port when ready."""
    server = await asyncio.start_server(Faucet(float(rate)).serve, "127.0.0.1", int(port), backlog=1000)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
