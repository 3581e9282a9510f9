"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:  # there is none for Windows
    from asyncio import new_event_loop

T = TypeVar("T")


class Background:
    """Runs coroutines for threads that have no event loop. One thread serves any number of them."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._running: set[Future[Any]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing should be submitted any more."""
        return self._closed

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`. Cancelling the future cancels it, and returns at once."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what was submitted, wait for its end, run `last`, and end the thread."""
        self._closed = True
        # Only what was submitted: what it started in its turn is its own to cancel.
        for future in list(self._running):
            future.cancel()
        asyncio.run_coroutine_threadsafe(_wait_for_others(), self._loop).result()
        asyncio.run_coroutine_threadsafe(last, self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _wait_for_others() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
