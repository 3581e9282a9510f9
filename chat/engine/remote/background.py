"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs coroutines for threads that have no event loop. One thread serves any number of them."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._running: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be submitted any more."""
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`. Cancelling the future cancels it, and returns at once."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def cancel_all(self) -> None:
        """Cancel what was submitted, and wait until it has ended."""
        # Only that: what it started in its turn is its own to cancel.
        for future in list(self._running):
            future.cancel()
        asyncio.run_coroutine_threadsafe(_wait_for_others(), self._loop).result()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _wait_for_others() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
