"""What every engine that owns a loaded model is made of: a line, one worker thread, and readers of what it writes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator

from chat.engine.failures import DeviceLost
from chat.engine.line import Line
from chat.engine.loading import LoadedModel
from chat.engine.preparing import Preparer
from chat.engine.request import Request
from chat.settings import EngineSettings
from chat.types import ChatError, Chunk, GenerationFailed, GenerationParams, Progress, Prompt, Status


class LocalEngine(ABC):
    """One worker thread owns the model; requests wait in line for it and know their place.

    A child says in `_work` what its worker does, and starts the worker when it is ready.
    """

    def __init__(self, loaded: LoadedModel, settings: EngineSettings) -> None:
        self._model, self._info = loaded.model, loaded.info
        self._preparer = Preparer(loaded)
        self._line = Line(settings.queue_size)
        self._serving: dict[str, Request] = {}
        self._lost: ChatError | None = None
        self._worker = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)

    @abstractmethod
    def _work(self) -> None:
        """Run in the worker's thread: answer the requests in line, until it is closed."""

    def status(self) -> Status:
        """Say at once whether the engine can answer."""
        return Status("failed", error=self._lost) if self._lost else Status("ready", info=self._info)

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Check and encode now; return the generator of the reply's chunks.

        Raises: PromptTooLong, InvalidRequest, QueueFull; from the generator also OutOfMemory, GenerationFailed.
        """
        if self._lost:
            raise DeviceLost
        self._line.check_room()
        return self._read(self._preparer.prepare(prompt, params))

    def close(self) -> None:
        """Cancel every request and end the worker."""
        self._line.close()
        for request in list(self._serving.values()):
            request.cancelled.set()
        self._worker.join()

    def _serve(self, request: Request) -> None:
        """Count a request that has left the line as one that is served, so that `close` finds it."""
        self._serving[request.id] = request
        if self._line.closed:
            request.cancelled.set()

    def _read(self, request: Request) -> Generator[Chunk, None, None]:
        """Run in the reader's thread: join the line, then pass on what the worker writes."""
        try:
            self._line.join(request)
            for chunk in request.streamer:
                yield chunk if chunk.text or chunk.thought else Chunk(progress=self._progress(request))
            yield Chunk(finish_reason=request.finish_reason(self._preparer.end_ids), usage=request.usage())
        finally:
            # Also the way of a closed generator, so it sets flags and never waits.
            request.cancelled.set()
            self._line.leave(request)

    def _progress(self, request: Request) -> Progress | None:
        if not self._worker.is_alive():
            raise GenerationFailed("The engine has stopped. Restart the app.")
        place = self._line.place(request)
        return Progress("queued", place) if place else request.progress
