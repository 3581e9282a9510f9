from __future__ import annotations

from chat.engine.remote.inbox import Inbox
from chat.types import Chunk, Progress


def test_texts_that_piled_up_are_taken_at_once_and_in_order() -> None:
    """G1"""
    inbox = Inbox()
    waits, last = Chunk(progress=Progress("queued", text="Wait.")), Chunk(finish_reason="stop")
    for chunk in (waits, Chunk(thought="a"), Chunk(thought="b"), Chunk(text="c"), last, None):
        inbox.put(chunk)
    assert [inbox.take() for _ in range(4)] == [waits, Chunk(text="c", thought="ab"), last, None]


def test_progress_is_repeated_until_there_is_text() -> None:
    """T3"""
    inbox = Inbox()
    assert inbox.take() == Chunk()
    waits = Chunk(progress=Progress("queued", text="Wait."))
    inbox.put(waits)
    assert [inbox.take(), inbox.take()] == [waits, waits]
    inbox.put(Chunk(text="a"))
    assert [inbox.take(), inbox.take()] == [Chunk(text="a"), Chunk()]
