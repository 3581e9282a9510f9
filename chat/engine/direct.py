"""model.generate in one worker thread: works for every model, one reply at a time."""

from __future__ import annotations

import torch

from chat.engine.failures import DeviceLost, explain_failure
from chat.engine.loading import LoadedModel
from chat.engine.local import LocalEngine
from chat.engine.memory import free_memory, release_memory
from chat.engine.reading import PromptReader
from chat.engine.request import Request
from chat.engine.sampling import generate
from chat.settings import EngineSettings
from chat.types import ChatError, OutOfMemory


class DirectEngine(LocalEngine):
    """One reply at a time."""

    def __init__(self, loaded: LoadedModel, settings: EngineSettings) -> None:
        super().__init__(loaded, settings)
        self._reader = PromptReader(loaded.model, _cache_budget(settings, loaded.model.device))
        self._worker.start()

    def _work(self) -> None:
        while (request := self._line.next()) is not None:
            self._serve(request)
            self._answer(request)
            del self._serving[request.id]

    def _answer(self, request: Request) -> None:
        failure = self._try(request)
        # Outside the except block, because until its end the traceback keeps the failed call's tensors alive.
        if isinstance(failure, OutOfMemory):
            dropped = self._reader.clear()
            release_memory()
            if dropped and not request.streamer.token_ids:
                failure = self._try(request)
        if failure is None:
            request.streamer.end()
            return
        if isinstance(failure, DeviceLost):
            self._lost = failure
        else:
            release_memory()
        request.streamer.fail(failure)

    def _try(self, request: Request) -> ChatError | None:
        """Generate the reply; return what went wrong."""
        try:
            self._generate(request)
        except Exception as error:
            return explain_failure(error)
        return None

    def _generate(self, request: Request) -> None:
        prompt = request.prompt
        cache = self._reader.read(request)
        if request.cancelled.is_set():
            return
        # A cache of recurrent states alone does not know its length, so generate must not see what it holds.
        unread = prompt.input_ids[-1:] if cache and all(cache.is_linear) else prompt.input_ids
        request.streamer.next_tokens_are_prompt = True  # also at a second try
        generate(
            self._model,
            unread,
            request.params,
            prompt.max_new_tokens,
            request.streamer,
            lambda: request.should_stop,
            cache,
        )
        if cache is not None:
            self._reader.keep(request, cache)


def _cache_budget(settings: EngineSettings, device: torch.device) -> int:
    """Return how many bytes of earlier turns to keep: as set, else a quarter of what is free with the model loaded."""
    return free_memory(device) // 4 if settings.cache_memory is None else settings.cache_memory
