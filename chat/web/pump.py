"""An engine's chunks on their way from the thread that waits for them to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from queue import Queue

from anyio import CapacityLimiter, to_thread

from chat.chunks import merge
from chat.types import Chunk

_MOST_UNREAD = 64  # so much of a reply a client that reads slowly may leave in memory


class Pump:
    """Takes one reply's chunks in a thread; the event loop is woken when there are some.

    To send a thread for each chunk would cost the server half as much again for every word.
    """

    def __init__(self, chunks: Generator[Chunk, None, None]) -> None:
        self._chunks = chunks
        self._loop = asyncio.get_running_loop()
        self._unread: Queue[Chunk] = Queue(_MOST_UNREAD)
        self._has_news = asyncio.Event()
        self._has_left = False

    async def run(self, limiter: CapacityLimiter) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks, in a thread that `limiter` counts. Raises: what they raise.

        However this ends, the thread closes them, at the latest when it has the next one.
        """
        taking = asyncio.ensure_future(to_thread.run_sync(self._take_all, limiter=limiter))
        taking.add_done_callback(self._end)
        try:
            while not (taking.done() and self._unread.empty()):
                await self._has_news.wait()
                self._has_news.clear()
                for chunk in merge(self._drain()):
                    yield chunk
            taking.result()
        finally:
            self._has_left = True
            self._drain()  # or the thread may wait for room

    def _take_all(self) -> None:
        """Run in the thread."""
        with closing(self._chunks):
            while not self._has_left and (chunk := next(self._chunks, None)) is not None:
                self._unread.put(chunk)
                if not self._has_news.is_set():
                    self._loop.call_soon_threadsafe(self._has_news.set)

    def _drain(self) -> list[Chunk]:
        # No more than there are now: while this runs, the thread may fill it again and again.
        return [self._unread.get_nowait() for _ in range(self._unread.qsize())]

    def _end(self, taking: asyncio.Future[None]) -> None:
        self._has_news.set()
        if not taking.cancelled():
            taking.exception()  # has been seen, or is of no interest to anybody who has left
