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
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`. Cancelling the future cancels it, and returns at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be submitted any more."""
        return self._loop.is_closed()

    def cancel_all(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        self.submit(_cancel_all()).result()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
