"""Chunks that have piled up before a reader who is slower than their writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from chat.types import Chunk


def merge(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the same in fewer chunks: text that follows text becomes one.

    So a reader that falls behind, because the machine has too many, catches up instead of falling further.
    """
    for is_text, neighbours in groupby(chunks, _is_only_text):
        if is_text:
            together = list(neighbours)
            yield Chunk("".join(chunk.text for chunk in together), "".join(chunk.thought for chunk in together))
        else:
            yield from neighbours


def _is_only_text(chunk: Chunk) -> bool:
    return bool(chunk.text or chunk.thought) and chunk.finish_reason is None
