"""An engine whose model runs on a server."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from concurrent.futures import CancelledError
from typing import Any

from chat.engine.remote.background import Background
from chat.engine.remote.body import tidy
from chat.engine.remote.counter import TokenCounter
from chat.engine.remote.errors import NothingThere, ReplyCut
from chat.engine.remote.inbox import Inbox
from chat.engine.remote.models import choose_model, find_window
from chat.engine.remote.request import Put, RemoteRequest
from chat.engine.remote.server import Server
from chat.engine.remote.window import fit
from chat.settings import EngineSettings
from chat.types import (
    ChatError,
    Chunk,
    EngineUnavailable,
    GenerationFailed,
    GenerationParams,
    ModelInfo,
    Progress,
    Prompt,
    Status,
)

_PAUSE_S = 3.0  # between two looks for a server that is gone

log = logging.getLogger(__name__)


class RemoteEngine:
    """Passes requests on to a server. One event loop serves them all, so a reply costs no thread."""

    def __init__(self, server: Server, settings: EngineSettings) -> None:
        """Begin to look for the server, which may come later, and go and come back."""
        self._server, self._settings = server, settings
        self._counter = TokenCounter(server, settings.tokenizer)
        self._refused: set[str] = set()
        self._opening = ""
        self._status = Status("loading", progress=Progress("loading", text=f"Connecting to {server.host}"))
        self._look_again_at = 0.0
        self._background = Background("remote-engine")
        self._looking = self._background.submit(self._look())

    def status(self) -> Status:
        """Say at once whether the server answers, as far as is known.

        While it does not, it is looked for again now and then, but only because somebody asks.
        """
        if self._status.state != "ready" and time.monotonic() >= self._look_again_at:
            self._look_soon()
        return self._status

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Return the generator of the reply's chunks; the request is sent when the first one is taken.

        Raises: InvalidRequest, EngineUnavailable; from the generator every ChatError.
        """
        if self._background.is_closed:
            raise EngineUnavailable("The engine is closed. Restart the app.")
        return self._read(prompt if isinstance(prompt, str) else tidy(prompt), params)

    def close(self) -> None:
        """End every request and every connection."""
        if not self._background.is_closed:
            self._background.close(self._server.close())

    def _read(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Run in the reader's thread: pass on what the event loop writes, and a sign of life meanwhile."""
        inbox = Inbox()
        writing = self._background.submit(self._write(prompt, params, inbox.put))
        writing.add_done_callback(lambda _: inbox.put(None))
        try:
            while chunk := inbox.take():
                yield chunk
            writing.result()
        except CancelledError:
            raise GenerationFailed("The engine is closed.") from None
        finally:
            # Also the way of a closed generator, so it asks for the end and does not wait for it.
            writing.cancel()

    async def _write(self, prompt: Prompt, params: GenerationParams, put: Put) -> None:
        info = self._status.info or await self._look()
        params = params.over(info.defaults)
        request = RemoteRequest(self._server, info.name, params, self._refused, put, self._opening)
        try:
            extract = await fit(
                prompt,
                params.max_new_tokens or self._settings.max_new_tokens,
                info.window,
                lambda prompt: self._counter.count(prompt, info.name),
            )
            await request.answer(extract)
        except (EngineUnavailable, ReplyCut):
            self._look_soon()
            raise

    def _look_soon(self) -> None:
        """Look for the server in the background, unless that is under way."""
        if self._looking.done() and not self._background.is_closed:
            self._looking = self._background.submit(self._look())

    async def _look(self) -> ModelInfo:
        """Look for the server and its model, and note what was found. Raises: ChatError."""
        try:
            info = await self._find_model()
        except ChatError as error:
            # A new error, because one that was raised keeps its frames, and with them the prompt, alive.
            self._note(Status("failed", error=type(error)(*error.args)))
            raise
        finally:
            self._look_again_at = time.monotonic() + _PAUSE_S
        self._note(Status("ready", info=info))
        return info

    def _note(self, status: Status) -> None:
        if status.state != self._status.state:
            log.info("%s", status.error or f"{self._server.host} answers.")
        self._status = status

    async def _find_model(self) -> ModelInfo:
        entries = await self._list_models()
        name = self._settings.model or choose_model(entries, self._server.host)
        window = find_window(entries, name) or await self._counter.window()
        self._opening = await self._counter.opening(name)
        return ModelInfo(name, self._server.host, "", window, self._settings.params())

    async def _list_models(self) -> list[dict[str, Any]]:
        try:
            return await self._server.models()
        except NothingThere:
            # Not every server has a list, and a named model needs none.
            if not self._settings.model:
                raise
            return []
