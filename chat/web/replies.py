"""Writers: an engine's reply in, OpenAI's objects out."""

from __future__ import annotations

import hashlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import ClassVar

from chat.reply import Reply
from chat.types import Chunk, FinishReason, ModelInfo, Usage
from chat.web.shapes import ChatChoice, ChatChunkChoice, Finish, Head, ReplyDelta, ReplyMessage, TextChoice, TokenCounts


class Writer(ABC):
    """Writes one reply, whole or as the events of a stream; the objects are those of chat.web.shapes."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    event_object: ClassVar[str]

    def __init__(self, describe: Callable[[], ModelInfo], include_usage: bool = False) -> None:
        """`describe` is called when there is something to write: before that the model may not be loaded.

        `include_usage` ends the stream with the token counts.
        """
        self._describe, self._include_usage = describe, include_usage

    @cached_property
    def _head(self) -> Head:
        info = self._describe()
        return {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": info.name,
            "system_fingerprint": f"fp_{hashlib.blake2b(repr(info).encode(), digest_size=5).hexdigest()}",
        }

    def whole(self, reply: Reply) -> dict[str, object]:
        """Return the object that holds the whole reply."""
        choices = [self._whole_choice(reply)]
        return {**self._head, "object": self.whole_object, "choices": choices, "usage": _count(reply.usage or Usage())}

    def events(self, chunk: Chunk) -> Iterator[dict[str, object]]:
        """Yield the events of the stream's next chunk: its text if it has any, the end if it is the last."""
        if chunk.text or chunk.thought:
            yield self._event([self._choice(Chunk(chunk.text, chunk.thought))])
        if chunk.finish_reason:
            yield self._event([self._choice(Chunk(finish_reason=chunk.finish_reason))])
            if self._include_usage:
                yield self._event([], _count(chunk.usage or Usage()))

    @abstractmethod
    def _whole_choice(self, reply: Reply) -> ChatChoice | TextChoice: ...

    @abstractmethod
    def _choice(self, chunk: Chunk) -> ChatChunkChoice | TextChoice: ...

    def _event(
        self, choices: list[ChatChunkChoice | TextChoice], usage: TokenCounts | None = None
    ) -> dict[str, object]:
        event: dict[str, object] = {**self._head, "object": self.event_object, "choices": choices}
        return event | {"usage": usage} if self._include_usage else event


class ChatWriter(Writer):
    """Writes the answer to a conversation."""

    id_prefix, whole_object, event_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    _begun = False

    def events(self, chunk: Chunk) -> Iterator[dict[str, object]]:
        """Yield the same; before the first one, who speaks."""
        if not self._begun:
            self._begun = True
            yield self._event([_chunk_choice({"role": "assistant", "content": ""}, Chunk())])
        yield from super().events(chunk)

    def _whole_choice(self, reply: Reply) -> ChatChoice:
        message: ReplyMessage = {"role": "assistant", "content": reply.content}
        if reply.thought:
            message["reasoning_content"] = reply.thought
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply.finish_reason)}

    def _choice(self, chunk: Chunk) -> ChatChunkChoice:
        delta: ReplyDelta = {}
        if chunk.thought:
            delta["reasoning_content"] = chunk.thought
        if chunk.text:
            delta["content"] = chunk.text
        return _chunk_choice(delta, chunk)


class TextWriter(Writer):
    """Writes the continuation of a text."""

    id_prefix, whole_object, event_object = "cmpl", "text_completion", "text_completion"

    def _whole_choice(self, reply: Reply) -> TextChoice:
        return self._choice(Chunk(reply.content, finish_reason=reply.finish_reason))

    def _choice(self, chunk: Chunk) -> TextChoice:
        return {"index": 0, "text": chunk.text, "logprobs": None, "finish_reason": _finish(chunk.finish_reason)}


def _chunk_choice(delta: ReplyDelta, chunk: Chunk) -> ChatChunkChoice:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": _finish(chunk.finish_reason)}


def _finish(reason: FinishReason | None) -> Finish | None:
    return None if reason == "cancelled" else reason


def _count(usage: Usage) -> TokenCounts:
    counts: TokenCounts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.messages_left_out:
        counts["messages_left_out"] = usage.messages_left_out
    return counts
