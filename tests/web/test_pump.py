"""Chunks on their way to the event loop: all of them, in order, and none is fetched for nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest
from anyio import CapacityLimiter

from chat.reply import Reply
from chat.types import Chunk, GenerationFailed
from chat.web.pump import Pump


class Source:
    """Ten thousand chunks; tells which was taken last, and when it is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.taken, self.closed, self._error = 0, threading.Event(), error

    def chunks(self) -> Generator[Chunk, None, None]:
        try:
            for self.taken in range(10_000):
                yield Chunk(f"{self.taken} ")
            if self._error:
                raise self._error
        finally:
            self.closed.set()


async def read_all(source: Source) -> str:
    return "".join([chunk.text async for chunk in Pump(source.chunks()).run(CapacityLimiter(1))])


def test_everything_arrives_in_order():
    source = Source()
    assert asyncio.run(read_all(source)) == "".join(f"{number} " for number in range(10_000))
    assert source.closed.is_set()


def test_an_error_arrives_after_what_came_before_it():
    """S1"""
    reply = Reply()

    async def read() -> None:
        async for chunk in Pump(Source(GenerationFailed("The model failed.")).chunks()).run(CapacityLimiter(1)):
            reply.add(chunk)

    with pytest.raises(GenerationFailed):
        asyncio.run(read())
    assert reply.content.endswith(" 9999 ")


def test_a_reader_that_waits_leaves_little_in_memory_and_can_go():
    """T6: also while the thread waits for it."""
    source = Source()

    async def read_one() -> None:
        chunks = Pump(source.chunks()).run(CapacityLimiter(1))
        await anext(chunks)
        # Until the thread has no more room it goes on.
        while source.taken < 64:
            await asyncio.sleep(0)
        await chunks.aclose()
        assert await asyncio.to_thread(source.closed.wait, 10)

    asyncio.run(read_one())
    assert source.taken <= 2 * 64 + 1


def test_nothing_is_asked_for_a_reader_who_has_left_before_a_thread_was_free():
    """T5"""
    source, limiter = Source(), CapacityLimiter(1)

    async def leave_early() -> None:
        await limiter.acquire()
        reading = asyncio.ensure_future(anext(Pump(source.chunks()).run(limiter)))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        limiter.release()
        async with limiter:  # comes after the thread
            pass

    asyncio.run(leave_early())
    assert source.taken == 0
    assert not source.closed.is_set()  # because it was never begun
