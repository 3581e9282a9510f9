"""model.generate in one worker thread: works for every model, one reply at a time."""

from __future__ import annotations

import gc
import inspect
import secrets
import threading
import time
from collections.abc import Generator

import torch
from transformers import DynamicCache, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from chat.engine.failures import DeviceLost, explain_failure
from chat.engine.line import Line
from chat.engine.loading import LoadedModel
from chat.engine.preparing import Preparer
from chat.engine.request import Request
from chat.engine.sampling import ScoreGuard, create_generation_config
from chat.settings import Settings
from chat.types import ChatError, Chunk, GenerationFailed, GenerationParams, Progress, Prompt, Status

_LONGEST_PIECE = 512  # prompt tokens read at once; larger pieces are no faster
_PIECE_S = 0.25  # aim for pieces this short, so that Stop is noticed while a long prompt is read


class DirectEngine:
    """One worker thread owns the model; requests wait in line for it and know their place."""

    def __init__(self, loaded: LoadedModel, settings: Settings) -> None:
        self._model, self._info = loaded.model, loaded.info
        self._preparer = Preparer(loaded)
        self._line = Line(settings.queue_size)
        self._serving: Request | None = None
        self._lost: ChatError | None = None
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(loaded.model.forward).parameters
        self._reads_in_pieces = not loaded.model.config.is_encoder_decoder and not any(self._new_cache().is_linear)
        self._worker = threading.Thread(target=self._work, name="direct-engine", daemon=True)
        self._worker.start()

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
        if serving := self._serving:
            serving.cancelled.set()
        self._worker.join()

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

    def _work(self) -> None:
        while (request := self._line.next()) is not None:
            self._serving = request
            self._answer(request)
            self._serving = None

    def _answer(self, request: Request) -> None:
        failure: ChatError | None = None
        try:
            self._generate(request)
        except Exception as error:
            failure = explain_failure(error)
        # Outside the except block, because until its end the traceback keeps the failed call's tensors alive.
        if failure is None:
            request.streamer.end()
            return
        if isinstance(failure, DeviceLost):
            self._lost = failure
        else:
            self._free_memory()
        request.streamer.fail(failure)

    def _generate(self, request: Request) -> None:
        params, ids = request.params, request.prompt.input_ids
        input_ids = torch.tensor([ids], device=self._model.device)
        cache = self._read_prompt(request, input_ids)
        if request.cancelled.is_set():
            return
        torch.manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
        self._model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=create_generation_config(
                self._model.generation_config, params, request.prompt.max_new_tokens
            ),
            streamer=request.streamer,
            stopping_criteria=StoppingCriteriaList([_Stopped(request)]),
            logits_processor=LogitsProcessorList([ScoreGuard()]),
            **({} if cache is None else {"cache": cache}),
        )

    @torch.inference_mode()
    def _read_prompt(self, request: Request, input_ids: torch.Tensor) -> DynamicCache | None:
        """Read all but the last prompt token into a cache, piece by piece; generate goes on from there."""
        if not self._reads_in_pieces:
            return None
        cache, total = self._new_cache(), input_ids.shape[1]
        options = {"logits_to_keep": 1} if self._takes_logits_to_keep else {}
        done, size = 0, 32
        while done < total - 1 and not request.cancelled.is_set():
            request.progress = Progress("reading", done, total)
            started = time.perf_counter()
            piece = input_ids[:, done : min(done + size, total - 1)]
            self._model(piece, cache=cache, use_cache=True, **options)
            done += piece.shape[1]
            if time.perf_counter() - started < _PIECE_S / 2:
                size = min(2 * size, _LONGEST_PIECE)
        request.progress = None
        return cache

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self._model.config.get_text_config(decoder=True))

    def _free_memory(self) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()


class _Stopped(StoppingCriteria):
    """End generation when the request was cancelled or its stop text has come."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return one flag for each row of `input_ids`, shape (batch,)."""
        return torch.full((input_ids.shape[0],), self._request.should_stop, device=input_ids.device)
