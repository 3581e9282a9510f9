"""Chunks on their way from the event loop to the reader's thread."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue

from chat.chunks import merge
from chat.types import Chunk

_HEARTBEAT_S = 0.1


class Inbox:
    """Filled on the event loop, emptied by one reader, who takes text that has piled up at once."""

    def __init__(self) -> None:
        self._arrived: SimpleQueue[Chunk | None] = SimpleQueue()
        self._unread: deque[Chunk] = deque()
        self._has_ended = False
        self._waiting = Chunk()

    def put(self, chunk: Chunk | None) -> None:
        """Add a chunk, or None as the end."""
        self._arrived.put(chunk)

    def take(self) -> Chunk | None:
        """Return the next chunk, None at the end. After 0.1 s without any, repeat the last progress."""
        if not self._unread and not self._has_ended:
            self._unread.extend(merge(self._pile()))
        if self._unread:
            chunk = self._unread.popleft()
            self._waiting = Chunk(progress=chunk.progress)
            return chunk
        return None if self._has_ended else self._waiting

    def _pile(self) -> list[Chunk]:
        """Wait for what comes next; return it and all behind it."""
        pile: list[Chunk] = []
        try:
            arrived = self._arrived.get(timeout=_HEARTBEAT_S)
            while arrived is not None:
                pile.append(arrived)
                arrived = self._arrived.get_nowait()
            self._has_ended = True
        except Empty:
            pass
        return pile
