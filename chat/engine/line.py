"""The line of requests before the one worker that owns the model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from chat.engine.request import Request
from chat.types import GenerationFailed, QueueFull


class Line:
    """A bounded first-come-first-served line in which everybody can see their place, and leave it."""

    def __init__(self, size: int) -> None:
        """`size` is how many may wait beside the one that is served."""
        self._size = size
        self._waiting: deque[Request] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def check_room(self) -> None:
        """Raise QueueFull if the line is full."""
        if len(self._waiting) >= self._size:
            raise QueueFull(f"{len(self._waiting)} people are waiting already, and no more can. Try again in a minute.")

    def join(self, request: Request) -> None:
        """Put a request at the end. Raises: QueueFull, or GenerationFailed once the line is closed."""
        with self._changed:
            if self._closed:
                raise GenerationFailed("The engine is closed. Restart the app.")
            self.check_room()
            self._waiting.append(request)
            self._changed.notify()

    def leave(self, request: Request) -> None:
        """Take a request out if it still waits."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)

    def place(self, request: Request) -> int:
        """Return 1 for the next in line, 0 for who is not waiting."""
        with self._changed:
            return self._waiting.index(request) + 1 if request in self._waiting else 0

    def next(self, fits: Callable[[Request], bool] = lambda request: True, wait: bool = True) -> Request | None:
        """Take out the first in line, if it fits; with `wait`, wait until somebody comes.

        Returns None if nobody can be taken, always so once the line is closed.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.popleft() if self._waiting and fits(self._waiting[0]) else None

    @property
    def closed(self) -> bool:
        """Whether everybody was sent away."""
        return self._closed

    def close(self) -> None:
        """Send everybody away and let the worker go home."""
        with self._changed:
            self._closed = True
            for request in self._waiting:
                request.cancelled.set()
                request.streamer.end()
            self._waiting.clear()
            self._changed.notify_all()
