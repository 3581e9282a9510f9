from __future__ import annotations

from chat.chunks import merge
from chat.types import Chunk, Progress


def test_texts_that_follow_each_other_become_one():
    """G1"""
    waits, last = Chunk(progress=Progress("queued", 1)), Chunk("e", finish_reason="stop")
    chunks = [waits, Chunk(thought="a"), Chunk(thought="b"), Chunk("c"), Chunk(), Chunk("d"), last]
    assert list(merge(chunks)) == [waits, Chunk("c", "ab"), Chunk(), Chunk("d"), last]
