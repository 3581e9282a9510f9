"""transformers' continuous batching: many people are answered at once, each as fast as if alone or nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transformers.generation.continuous_batching.requests import FutureRequestState, GenerationOutput

from chat.engine.batch import Batch
from chat.engine.batching_trial import CannotBatch, find_obstacle, try_batching
from chat.engine.choosing import create_choice
from chat.engine.failures import DeviceLost, explain_failure
from chat.engine.loading import LoadedModel
from chat.engine.local import LocalEngine
from chat.engine.memory import release_memory
from chat.engine.pages import MOST_REQUESTS, plan_pages
from chat.engine.request import Request
from chat.settings import EngineSettings
from chat.types import ChatError, GenerationFailed, Progress

_TICK_S = 0.02  # how late a stop or a newcomer may be noticed


class BatchedEngine(LocalEngine):
    """Requests join the batch as soon as the pool has pages for the longest reply they may get.

    The worker moves tokens to the readers; the batch reads and writes in a thread of its own.
    """

    def __init__(self, loaded: LoadedModel, settings: EngineSettings) -> None:
        """Try it on the model itself. Raises: CannotBatch, OutOfMemory."""
        if obstacle := find_obstacle(loaded.model):
            raise CannotBatch(obstacle)
        self._pool = plan_pages(loaded.model, loaded.info.window, settings.cache_memory)
        try_batching(loaded.model, self._pool)
        window = min(loaded.info.window, self._pool.longest)
        super().__init__(replace(loaded, info=replace(loaded.info, window=window)), settings)
        self._batch: Batch | None = None
        self._worker.start()

    def _work(self) -> None:
        while not self._line.closed:
            while request := self._line.next(self._fits, wait=not self._serving):
                self._begin(request)
            if self._batch:
                self._deliver(self._batch)
        if self._batch:
            self._batch.stop()
        for request in list(self._serving.values()):
            self._end(request)

    def _fits(self, request: Request) -> bool:
        reserved = sum(map(self._pages, self._serving.values()))
        return len(self._serving) < MOST_REQUESTS and reserved + self._pages(request) <= self._pool.usable_pages

    def _pages(self, request: Request) -> int:
        return self._pool.pages_for(len(request.prompt.input_ids) + request.prompt.max_new_tokens)

    def _begin(self, request: Request) -> None:
        if self._batch and self._batch.dead:
            self._bury(self._batch)
        self._serve(request)
        ids = request.prompt.input_ids
        try:
            if self._batch is None:
                self._batch = Batch(self._model, self._pool, self._preparer.end_ids, self._watch)
            choice = create_choice(self._model, request.params, len(ids))
            self._batch.add(request.id, ids, choice, request.prompt.max_new_tokens)
        except Exception as error:
            self._end(request, explain_failure(error))

    def _watch(self, members: Sequence[FutureRequestState]) -> None:
        """Run in the batch's thread before each step: note how far each prompt is read, and see who has stopped."""
        for member in members:
            request = self._serving.get(member.state.request_id)
            if request is None:
                continue
            if request.should_stop and self._batch:
                self._batch.cancel(request.id)
            if not member.state.generated_tokens:
                done = member.state.position_offset - member.query_length
                if request.progress is None:
                    request.cached_tokens = done
                request.progress = Progress("reading", done, len(request.prompt.input_ids))

    def _deliver(self, batch: Batch) -> None:
        """Pass on what the batch has to say next, and end whoever has stopped."""
        if output := batch.output(_TICK_S):
            self._take(output, batch)
        for request in list(self._serving.values()):
            if request.should_stop:
                batch.cancel(request.id)
                self._end(request)
        if batch.dead:
            self._bury(batch)

    def _take(self, output: GenerationOutput, batch: Batch) -> None:
        """Write the new ones of a request's tokens, which the output holds all of; an error is this request's own."""
        request = self._serving.get(output.request_id)
        if request is None:
            return
        try:
            for token_id in output.generated_tokens[len(request.streamer.token_ids) :]:
                request.progress = None
                request.streamer.put_token(token_id)
            if output.error and not batch.dead:
                raise GenerationFailed(output.error)
        except Exception as error:
            request.cancelled.set()
            request.streamer.fail(explain_failure(error))
        if output.is_finished() and not batch.dead:
            self._end(request)

    def _bury(self, batch: Batch) -> None:
        """Tell everybody what a dead batch died of, after its last words; the next request gets a new one."""
        error = batch.failure()
        while output := batch.output(0):
            self._take(output, batch)
        for request in list(self._serving.values()):
            # One for each, because a raised exception carries its reader's frames.
            failure = explain_failure(error)
            self._end(request, failure)
            if isinstance(failure, DeviceLost):
                self._lost = failure
        self._batch = None
        release_memory()

    def _end(self, request: Request, failure: ChatError | None = None) -> None:
        del self._serving[request.id]
        if failure is None:
            request.streamer.end()
        else:
            request.streamer.fail(failure)
