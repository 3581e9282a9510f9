"""Writers: an engine's reply in, OpenAI's objects out."""

from __future__ import annotations

import hashlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from chat.reply import Reply
from chat.types import Chunk, FinishReason, ModelInfo, Usage
from chat.web.shapes import (
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    Finish,
    Head,
    ReplyDelta,
    ReplyMessage,
    TextChoice,
    TokenCounts,
)


class Writer(ABC):
    """Writes one reply, whole or as the events of a stream."""

    id_prefix: ClassVar[str]

    def __init__(self, describe: Callable[[], ModelInfo], include_usage: bool = False) -> None:
        """`describe` is called when there is something to write: before that the model may not be loaded.

        `include_usage` ends the stream with the token counts.
        """
        self._describe, self._include_usage = describe, include_usage

    @abstractmethod
    def whole(self, reply: Reply) -> Mapping[str, object]:
        """Return the object that holds the whole reply."""

    def events(self, chunk: Chunk) -> Iterator[Mapping[str, object]]:
        """Yield the events of the stream's next chunk: its text if it has any, the end if it is the last."""
        if chunk.text or chunk.thought:
            yield self._event([Chunk(chunk.text, chunk.thought)])
        if chunk.finish_reason:
            yield self._event([Chunk(finish_reason=chunk.finish_reason)])
            if self._include_usage:
                yield self._event([], chunk.usage)

    @abstractmethod
    def _event(self, chunks: Sequence[Chunk], usage: Usage | None = None) -> Mapping[str, object]:
        """Return one event, of one chunk or of none."""

    @cached_property
    def _head(self) -> Head:
        info = self._describe()
        return {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": info.name,
            "system_fingerprint": f"fp_{hashlib.blake2b(repr(info).encode(), digest_size=5).hexdigest()}",
        }


class ChatWriter(Writer):
    """Writes the answer to a conversation."""

    id_prefix = "chatcmpl"
    _begun = False

    def whole(self, reply: Reply) -> ChatCompletion:
        """Return the object that holds the whole reply."""
        message: ReplyMessage = {"role": "assistant", "content": reply.content}
        if reply.thought:
            message["reasoning_content"] = reply.thought
        choice: ChatChoice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish(reply.finish_reason),
        }
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _count(reply.usage)}

    def events(self, chunk: Chunk) -> Iterator[Mapping[str, object]]:
        """Yield the same; before the first one, who speaks."""
        if not self._begun:
            self._begun = True
            yield self._of([_chunk_choice({"role": "assistant", "content": ""})], None)
        yield from super().events(chunk)

    def _event(self, chunks: Sequence[Chunk], usage: Usage | None = None) -> ChatCompletionChunk:
        return self._of([_chunk_choice(_delta(chunk), chunk.finish_reason) for chunk in chunks], usage)

    def _of(self, choices: list[ChatChunkChoice], usage: Usage | None) -> ChatCompletionChunk:
        return {**self._head, "object": "chat.completion.chunk", "choices": choices, "usage": _count(usage)}


class TextWriter(Writer):
    """Writes the continuation of a text."""

    id_prefix = "cmpl"

    def whole(self, reply: Reply) -> Completion:
        """Return the object that holds the whole reply."""
        return self._event([Chunk(reply.content, finish_reason=reply.finish_reason)], reply.usage)

    def _event(self, chunks: Sequence[Chunk], usage: Usage | None = None) -> Completion:
        choices = [_text_choice(chunk) for chunk in chunks]
        return {**self._head, "object": "text_completion", "choices": choices, "usage": _count(usage)}


def _delta(chunk: Chunk) -> ReplyDelta:
    delta: ReplyDelta = {}
    if chunk.thought:
        delta["reasoning_content"] = chunk.thought
    if chunk.text:
        delta["content"] = chunk.text
    return delta


def _chunk_choice(delta: ReplyDelta, reason: FinishReason | None = None) -> ChatChunkChoice:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": _finish(reason)}


def _text_choice(chunk: Chunk) -> TextChoice:
    return {"index": 0, "text": chunk.text, "logprobs": None, "finish_reason": _finish(chunk.finish_reason)}


def _finish(reason: FinishReason | None) -> Finish | None:
    return None if reason == "cancelled" else reason


def _count(usage: Usage | None) -> TokenCounts | None:
    if usage is None:
        return None
    counts: TokenCounts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.messages_left_out:
        counts["messages_left_out"] = usage.messages_left_out
    return counts
