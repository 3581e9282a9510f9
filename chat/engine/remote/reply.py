"""A reply while a server sends it: events in, chunks out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from chat.engine.reasoning import ThoughtSplitter
from chat.engine.remote.errors import ConnectionBroken, explain_event
from chat.engine.remote.server import Event
from chat.engine.stop_texts import StopTexts
from chat.engine.thought_formats import ThoughtFormat
from chat.types import Chunk, FinishReason, GenerationFailed, Usage

_SHORTEST_S = 0.05  # what comes in a shorter time came in one packet, and says nothing of the server's speed


class IncomingReply:
    """Splits thoughts off, cuts at stop texts, and counts, whatever of this the server does itself."""

    def __init__(self, stops: Sequence[str], thoughts: ThoughtFormat | None, tail: str, started: float) -> None:
        """`tail` is what the prompt already holds of the reply; `started` the time of the request."""
        self._stops, self._splitter = StopTexts(stops), ThoughtSplitter(thoughts, tail)
        self._started, self._first_at, self._last_at = started, 0.0, 0.0
        self._server_splits = self._has_answer = False
        self._reason: str | None = None
        self._pieces = 0
        self._counted: Mapping[str, Any] = {}

    @property
    def has_begun(self) -> bool:
        """Whether any text or thought has come."""
        return self._pieces > 0

    @property
    def is_cut(self) -> bool:
        """Whether a stop text has come, so that nothing further is needed."""
        return self._stops.matched

    def feed(self, event: Event) -> Chunk:
        """Take the next event. Raises: GenerationFailed if it reports an error."""
        if error := event.get("error"):
            raise explain_event(error)
        self._counted = event.get("usage") or self._counted
        choice: Mapping[str, Any] = next(iter(event.get("choices") or ()), {})
        self._reason = self._reason or choice.get("finish_reason")
        delta = choice.get("delta") or {}
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        text = delta.get("content") or choice.get("text") or ""
        if not thought and not text:
            return Chunk()
        self._count()
        self._server_splits = self._server_splits or bool(thought)
        if not self._server_splits:
            thought, text = self._splitter.feed(text)
        elif not self._has_answer:
            text = text.lstrip()
        self._has_answer = self._has_answer or bool(text)
        return Chunk(text=self._stops.feed(text), thought=thought)

    def finish(self) -> Chunk:
        """Return what was held back."""
        thought, text = self._splitter.finish()
        return Chunk(text=self._stops.feed(text) + self._stops.finish(), thought=thought)

    def last_chunk(self, messages_left_out: int) -> Chunk:
        """Return the chunk that ends the stream.

        Raises: ConnectionBroken, GenerationFailed if the reply has no proper end.
        """
        return Chunk(finish_reason=self._finish_reason(), usage=self._usage(messages_left_out))

    def _finish_reason(self) -> FinishReason:
        if self.is_cut:
            return "stop"
        if self._reason is None or self._reason in ("abort", "error"):
            raise ConnectionBroken
        if self._reason == "content_filter":
            raise GenerationFailed("The server's content filter ended the reply. What came so far is kept.")
        return "length" if self._reason == "length" else "stop"

    def _count(self) -> None:
        self._last_at = time.perf_counter()
        self._first_at = self._first_at or self._last_at
        self._pieces += 1

    def _usage(self, messages_left_out: int) -> Usage:
        details = self._counted.get("prompt_tokens_details") or {}
        tokens = self._counted.get("completion_tokens") or self._pieces
        decoding_s = self._last_at - self._first_at
        return Usage(
            prompt_tokens=self._counted.get("prompt_tokens") or 0,
            cached_tokens=details.get("cached_tokens") or 0,
            completion_tokens=tokens,
            first_token_s=max(0.0, self._first_at - self._started),
            tokens_per_s=(tokens - 1) / decoding_s if decoding_s > _SHORTEST_S else 0.0,
            messages_left_out=messages_left_out,
        )
