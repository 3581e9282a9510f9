"""One request on its way through a local engine: what it asks, what it has become, how to stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import uuid4

from chat.engine.prompt import EncodedPrompt
from chat.engine.streamer import ReplyStreamer
from chat.types import FinishReason, GenerationParams, Progress, Usage


@dataclass(eq=False)
class Request:
    """What the reader's and the worker's thread share. The worker writes, the reader reads and may cancel."""

    prompt: EncodedPrompt
    params: GenerationParams
    streamer: ReplyStreamer
    cancelled: threading.Event = field(default_factory=threading.Event)
    submitted_at: float = field(default_factory=time.perf_counter)
    progress: Progress | None = None
    cached_tokens: int = 0
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def should_stop(self) -> bool:
        """Whether no further token is wanted."""
        return self.cancelled.is_set() or self.streamer.stop_text_found

    def finish_reason(self, end_ids: Collection[int]) -> FinishReason:
        """Say why the reply ended."""
        if self.cancelled.is_set():
            return "cancelled"
        ids = self.streamer.token_ids
        return "stop" if self.streamer.stop_text_found or (ids and ids[-1] in end_ids) else "length"

    def usage(self) -> Usage:
        """Count what the reply cost so far."""
        streamer, tokens = self.streamer, len(self.streamer.token_ids)
        decoding_s = streamer.last_token_at - streamer.first_token_at
        return Usage(
            prompt_tokens=len(self.prompt.input_ids),
            cached_tokens=self.cached_tokens,
            completion_tokens=tokens,
            first_token_s=max(0.0, streamer.first_token_at - self.submitted_at),
            tokens_per_s=(tokens - 1) / decoding_s if decoding_s > 0 else 0.0,
            messages_left_out=self.prompt.messages_left_out,
        )
