"""How much memory a process takes at most during a while."""

from __future__ import annotations

import threading
from contextlib import suppress

import psutil

_EVERY_S = 0.05


class PeakMemory:
    """A context in which `peak` follows the resident bytes of a process."""

    def __init__(self, process: int) -> None:
        self._process = psutil.Process(process)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)
        self.peak = self._process.memory_info().rss

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        # A process that ends has no more to show.
        with suppress(psutil.Error):
            while not self._ended.wait(_EVERY_S):
                self.peak = max(self.peak, self._process.memory_info().rss)
