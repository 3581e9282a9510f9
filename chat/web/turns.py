"""The turns being taken now: a question in, the growing conversation out."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from chat import conversation
from chat.conversation import History
from chat.reply import Reply
from chat.types import Chunk, Engine, GenerationParams, InvalidRequest, Prompt

_UPDATE_S = 1 / 15  # each update costs the browser a repaint, and more the longer the conversation is


@dataclass(frozen=True, slots=True)
class Update:
    """What to show now. Only the last of a turn is over; it carries the error if the turn failed."""

    history: History
    reply: Reply
    is_over: bool = False
    error: Exception | None = None


class Turns:
    """Takes turns with one engine, at most one at a time for each visitor."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stops: dict[str, threading.Event] = {}

    def take(
        self, visitor: str, before: History, asked: History, prompt: Prompt, params: GenerationParams
    ) -> Generator[Update, None, None]:
        """Answer `asked`, or continue its last reply; yield at most 15 updates a second, the last one whole.

        `prompt` is what the engine reads of it. A turn that fails before its first word leaves the history
        as it was `before`.
        Raises: ChatError if the turn is refused before it begins.
        """
        reply = Reply.going_on_from(asked[-1]) if conversation.can_continue(asked) else Reply()
        start = (reply.content, reply.thought)
        with self._begin(visitor) as stop:
            stream = self._engine.stream(prompt, params)
            yield Update(conversation.reply(asked, reply.message()), reply)
            try:
                with closing(stream):
                    for _ in _gather(stream, reply, stop):
                        yield Update(conversation.reply(asked, reply.message()), reply)
            except Exception as error:
                said_nothing = (reply.content, reply.thought) == start
                left = before if said_nothing else conversation.reply(asked, reply.message())
                yield Update(left, reply, is_over=True, error=error)
            else:
                yield Update(conversation.reply(asked, reply.message()), reply, is_over=True)

    def stop(self, visitor: str) -> None:
        """Let the visitor's turn end with what it has; do nothing if there is none."""
        if stop := self._stops.get(visitor):
            stop.set()

    def is_busy(self, visitor: str) -> bool:
        """Tell whether a reply to the visitor is being written."""
        return visitor in self._stops

    def check_idle(self, visitor: str) -> None:
        """Raise InvalidRequest if a reply to the visitor is being written."""
        if self.is_busy(visitor):
            raise _busy()

    @contextmanager
    def _begin(self, visitor: str) -> Iterator[threading.Event]:
        stop = threading.Event()
        if self._stops.setdefault(visitor, stop) is not stop:
            raise _busy()
        try:
            yield stop
        finally:
            del self._stops[visitor]


def _busy() -> InvalidRequest:
    return InvalidRequest("The last reply is still being written. Stop it or wait for its end, then try again.")


def _gather(stream: Iterable[Chunk], reply: Reply, stop: threading.Event) -> Iterator[None]:
    """Add the chunks to `reply` until the end or `stop`; yield now and then for showing it."""
    shown = 0.0
    for chunk in stream:
        reply.add(chunk)
        if stop.is_set():
            return
        if time.monotonic() - shown >= _UPDATE_S:
            yield
            shown = time.monotonic()
