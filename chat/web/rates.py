"""How often something may happen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MOST_KEYS = 10_000


class Rate:
    """At most `count` in `seconds` for each key; who has used them up waits for the next, not for all.

    A key costs one number: the time at which it has all of its count again. Later than that it is forgotten.
    """

    def __init__(self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._seconds, self._clock = seconds / count, seconds, clock
        self._free_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, key: str, patience: float = 0.0) -> float:
        """Return how many seconds this one has to wait; it counts only if that is at most `patience`."""
        with self._lock:
            now = self._clock()
            free_at = max(self._free_at.get(key, now), now) + self._interval
            wait = max(0.0, free_at - self._seconds - now)
            if wait <= patience:
                self._free_at.pop(key, None)
                self._free_at[key] = free_at
                self._forget(now)
            return wait

    def give_back(self, key: str) -> None:
        """Let one that was taken not count."""
        with self._lock:
            if key in self._free_at:
                self._free_at[key] -= self._interval

    def _forget(self, now: float) -> None:
        """Bound the memory: drop who is free anyway, and if that is not enough, who was longest not here."""
        if len(self._free_at) > _MOST_KEYS:
            self._free_at = {key: at for key, at in self._free_at.items() if at > now}
        if len(self._free_at) > _MOST_KEYS:
            del self._free_at[next(iter(self._free_at))]
