"""A reply while it grows: chunks in, message out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from chat.types import Chunk, FinishReason, Message, Progress, Usage


@dataclass
class Reply:
    """What a stream has said so far; `progress` is what the engine does while it says nothing.

    `seconds` is how long it took up to the newest chunk.
    """

    content: str = ""
    thought: str = ""
    thought_s: float = 0.0
    progress: Progress | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic, repr=False)
    _thinking_since: float | None = field(default=None, repr=False)

    @classmethod
    def going_on_from(cls, message: Message) -> Reply:
        """Return a reply that begins with what `message` says already."""
        return cls(message["content"], message.get("thought", ""), message.get("thought_s", 0.0))

    def add(self, chunk: Chunk) -> None:
        """Take in the stream's next chunk."""
        now = time.monotonic()
        self._time_thought(chunk, now)
        self.seconds = now - self._started
        self.content += chunk.text
        self.thought += chunk.thought
        self.progress = chunk.progress
        self.finish_reason = chunk.finish_reason
        self.usage = chunk.usage

    def message(self) -> Message:
        """Return the reply as the history keeps it; one that has not ended counts as stopped."""
        message: Message = {"role": "assistant", "content": self.content}
        if self.thought:
            message |= {"thought": self.thought, "thought_s": self.thought_s}
        message["finish_reason"] = self.finish_reason or "cancelled"
        return message

    def _time_thought(self, chunk: Chunk, now: float) -> None:
        if self._thinking_since is not None:
            self.thought_s += now - self._thinking_since
        thinking = not (chunk.text or chunk.finish_reason) and (chunk.thought or self._thinking_since is not None)
        self._thinking_since = now if thinking else None
