"""The turns being taken now: a question in, the growing conversation out."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from chat import conversation
from chat.conversation import History
from chat.reply import Reply
from chat.types import Chunk, Engine, GenerationParams, InvalidRequest, Prompt
from chat.web.limits import Limits

_UPDATE_S = 1 / 15  # each update costs the browser a repaint, and more the longer the conversation is


class Visitor(NamedTuple):
    """Who takes a turn: a page load, or a client of the endpoint, and the address that it counts for."""

    session: str
    address: str


@dataclass(frozen=True, slots=True)
class Update:
    """What to show now. Only the last of a turn is over; it carries the error if the turn failed."""

    history: History
    reply: Reply
    is_over: bool = False
    error: Exception | None = None


class Turns:
    """Takes turns with one engine, within the limits, at most one at a time for each visitor."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine, self._limits = engine, limits
        self._stops: dict[str, threading.Event] = {}

    def take(
        self, visitor: Visitor, before: History, asked: History, prompt: Prompt, params: GenerationParams
    ) -> Generator[Update, None, None]:
        """Answer `asked`, or continue its last reply; yield at most 15 updates a second, the last one whole.

        `prompt` is what the engine reads of it. A turn that fails before its first word leaves the history
        as it was `before`.
        Raises: ChatError if the turn is refused before it begins; what made it fail, after its last update.
        """
        reply = Reply.going_on_from(asked[-1]) if conversation.can_continue(asked) else Reply()
        start = (reply.content, reply.thought)
        with self._begin(visitor, prompt) as stop:
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
                raise
            yield Update(conversation.reply(asked, reply.message()), reply, is_over=True)

    def stop(self, visitor: Visitor) -> None:
        """Let the visitor's turn end with what it has; do nothing if there is none."""
        if stop := self._stops.get(visitor.session):
            stop.set()

    def is_busy(self, visitor: Visitor) -> bool:
        """Tell whether a reply to the visitor is being written."""
        return visitor.session in self._stops

    def check_idle(self, visitor: Visitor) -> None:
        """Raise InvalidRequest if a reply to the visitor is being written."""
        if self.is_busy(visitor):
            raise _busy()

    @contextmanager
    def _begin(self, visitor: Visitor, prompt: Prompt) -> Iterator[threading.Event]:
        stop = threading.Event()
        if self._stops.setdefault(visitor.session, stop) is not stop:
            raise _busy()
        try:
            self._limits.check(prompt)
            with self._limits.reply(visitor.address):
                yield stop
        finally:
            del self._stops[visitor.session]


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
