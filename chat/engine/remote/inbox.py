"""Chunks on their way from the event loop to the reader's thread."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from chat.types import Chunk

_HEARTBEAT_S = 0.1


class Inbox:
    """Filled on the event loop, emptied by one reader. Text that has piled up is taken at once.

    So a reader that falls behind, because the machine has too many, catches up instead of falling further.
    """

    def __init__(self) -> None:
        self._chunks: SimpleQueue[Chunk | None] = SimpleQueue()
        self._unread: list[Chunk | None] = []
        self._waiting = Chunk()

    def put(self, chunk: Chunk | None) -> None:
        """Add a chunk, or None as the end."""
        self._chunks.put(chunk)

    def take(self) -> Chunk | None:
        """Return the next chunk, None at the end. After 0.1 s without any, repeat the last progress."""
        try:
            chunk = self._unread.pop() if self._unread else self._chunks.get(timeout=_HEARTBEAT_S)
        except Empty:
            return self._waiting
        if chunk is None:
            return None
        self._waiting = Chunk(progress=chunk.progress)
        return self._join(chunk) if _is_text(chunk) else chunk

    def _join(self, chunk: Chunk) -> Chunk:
        """Return one chunk for this and the texts behind it."""
        chunks = [chunk]
        while not self._unread and not self._chunks.empty():
            following = self._chunks.get()
            if following and _is_text(following):
                chunks.append(following)
            else:
                self._unread.append(following)
        return Chunk(text="".join(c.text for c in chunks), thought="".join(c.thought for c in chunks))


def _is_text(chunk: Chunk) -> bool:
    return bool(chunk.text or chunk.thought)
