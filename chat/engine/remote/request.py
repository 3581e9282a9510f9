"""One request: tried until its first word, passed on from there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from chat.engine.remote.body import CONTINUE, OPTIONAL, RENAMED, create_body, whole_text
from chat.engine.remote.errors import ConnectionBroken, Overloaded, ReplyCut, WindowExceeded
from chat.engine.remote.reply import IncomingReply
from chat.engine.remote.server import Server
from chat.engine.remote.window import Extract, shrink
from chat.engine.thought_formats import TAGGED
from chat.types import (
    Chunk,
    GenerationFailed,
    GenerationParams,
    InvalidRequest,
    Progress,
    Prompt,
)

Put: TypeAlias = Callable[[Chunk], None]

_LONGEST_WAIT_S = 60.0


@dataclass
class RemoteRequest:
    """What is asked of whom. `refused` collects what this server does not take, for all requests."""

    server: Server
    model: str
    params: GenerationParams
    refused: set[str]
    put: Put
    opening: str = ""
    """What the model's template writes at the start of each reply."""
    started: float = field(default_factory=time.perf_counter)

    async def answer(self, extract: Extract) -> None:
        """Put the chunks of the reply. Raises: ChatError; what came before it has been put."""
        waits = _Waits()
        remaining: Extract | None = extract
        while remaining is not None:
            remaining = await self._try(remaining, waits)

    async def _try(self, extract: Extract, waits: _Waits) -> Extract | None:
        """Ask once; return what to ask next, None if the reply has come."""
        try:
            await self._ask(extract)
        except Overloaded as error:
            delay = waits.next(error)
            self.put(Chunk(progress=Progress("queued", text=f"{error} Trying again in {delay:.0f} s")))
            await asyncio.sleep(delay)
        except WindowExceeded as error:
            return shrink(extract, error)
        except InvalidRequest as error:
            self._do_without(error)
        else:
            return None
        return extract

    async def _ask(self, extract: Extract) -> None:
        reply = self._expect(extract.prompt)
        try:
            await self._receive(extract, reply)
            self._put(reply.finish())
            self.put(reply.last_chunk(extract.messages_left_out))
        except (ConnectionBroken, GenerationFailed) as error:
            self._put(reply.finish())
            if isinstance(error, ConnectionBroken) and reply.has_begun:
                raise ReplyCut from error
            raise

    async def _receive(self, extract: Extract, reply: IncomingReply) -> None:
        params = self.params.model_copy(update={"max_new_tokens": extract.max_new_tokens})
        body = create_body(self.model, extract.prompt, params, self.refused)
        path = "/completions" if isinstance(extract.prompt, str) else "/chat/completions"
        async with aclosing(self.server.events(path, body)) as events:
            async for event in events:
                self._put(reply.feed(event))
                if reply.is_cut:
                    return

    def _expect(self, prompt: Prompt) -> IncomingReply:
        if isinstance(prompt, str):
            return IncomingReply(self.params.stop, None, "", self.started)
        last = prompt[-1]
        tail = whole_text(last) if last["role"] == "assistant" else self.opening
        return IncomingReply(self.params.stop, TAGGED, tail, self.started)

    def _put(self, chunk: Chunk) -> None:
        if chunk.text or chunk.thought:
            self.put(chunk)

    def _do_without(self, error: InvalidRequest) -> None:
        """Note what the server refused, so that it is not sent again. Raises: `error` if it cannot be missed."""
        if error.param in CONTINUE:
            raise InvalidRequest(f"{self.server.host} cannot go on with a reply. Retry it instead.") from error
        newer = RENAMED.get(error.param or "", "")
        if error.param not in OPTIONAL - self.refused or newer not in str(error):
            raise error
        self.refused.add(error.param)


class _Waits:
    """How long to wait before each next attempt: as the server says, or 1, 2, 4, ... seconds, a minute in all."""

    def __init__(self) -> None:
        self._next, self._total = 1.0, 0.0

    def next(self, error: Overloaded) -> float:
        """Return the next wait in seconds. Raises: `error` if it would be too long."""
        # A little more than was asked for, and not the same for everybody, or all come back at once.
        delay = (error.retry_after or self._next) * random.uniform(1, 1.25)
        if self._total + delay > _LONGEST_WAIT_S:
            raise error
        self._next *= 2
        self._total += delay
        return delay
