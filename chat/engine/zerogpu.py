"""An engine for Spaces with ZeroGPU: a GPU is there only while a decorated function runs, in a forked process."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from contextvars import copy_context
from typing import Any, TypeAlias

import spaces  # before torch, which it patches: until a GPU is there, it emulates one
from gradio.exceptions import Error

from chat.engine.failures import DeviceLost, explain_failure
from chat.engine.loading import LoadedModel, load_model
from chat.engine.preparing import Preparer
from chat.engine.request import Request
from chat.engine.starting import Report, StartingEngine
from chat.engine.writing import write_tokens
from chat.settings import EngineSettings
from chat.types import (
    ChatError,
    Chunk,
    Engine,
    EngineUnavailable,
    GenerationFailed,
    GenerationParams,
    ModelLoadError,
    OutOfMemory,
    Progress,
    Prompt,
    QueueFull,
    Status,
)

logger = logging.getLogger(__name__)

Load: TypeAlias = Callable[[EngineSettings, Report], LoadedModel]

_START_S, _TOKENS_PER_S = 15, 20  # to move the weights and read the prompt; what a large model writes
_LONGEST_S = 75

_ADVICE = {
    "ZeroGPU quota exceeded": "Sign in to Hugging Face for more, or lower Max tokens, which asks for less.",
    "ZeroGPU illegal duration": "Lower Max tokens.",
    "ZeroGPU worker error": "Continue the reply or try again; a shorter one is safer.",
}
"""What to do next, by the title of an error that `spaces` raises."""


def create_zerogpu_engine(settings: EngineSettings, load: Load = load_model) -> Engine:
    """Return an engine with its model loaded, on the main thread as ZeroGPU wants it, or one that says why not."""
    try:
        return ZeroGPUEngine(settings, load)
    except ChatError as error:
        failure = error

    def fail(report: Report) -> Engine:
        raise failure

    return StartingEngine(fail)


def gpu_seconds(input_ids: list[int], max_new_tokens: int, params: dict[str, Any]) -> int:
    """Return how long to ask for a GPU. What is asked for counts against the visitor's quota, not what is used."""
    return min(_LONGEST_S, _START_S + math.ceil(max_new_tokens / _TOKENS_PER_S))


class ZeroGPUEngine:
    """Each reply is written by a process of its own; ZeroGPU's scheduler is the line. No cache outlives a reply."""

    def __init__(self, settings: EngineSettings, load: Load = load_model) -> None:
        """Raises: ModelLoadError."""
        # Decorated before anything can fail, because a Space that decorated nothing by its launch is shut down.
        self._tokens_from_gpu = spaces.GPU(self._write, duration=gpu_seconds)
        if settings.engine == "batched":
            raise ModelLoadError("ZeroGPU gives each reply a process of its own. Set --engine to auto.")
        # Only this thread sees the emulated GPU, so only it may load.
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        self._loaded = load(settings.model_copy(update={"device": "cuda"}), lambda progress: None)
        self._preparer = Preparer(self._loaded)
        self._most = settings.queue_size
        self._serving: set[Request] = set()

    def status(self) -> Status:
        """Say that the engine is ready: it is there only once its model is."""
        return Status("ready", info=self._loaded.info)

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Check and encode now, without a GPU; return the generator of the reply's chunks.

        Raises: PromptTooLong, InvalidRequest, QueueFull; from the generator EngineUnavailable if there is
        no GPU to be had, OutOfMemory, GenerationFailed.
        """
        if len(self._serving) >= self._most:
            raise QueueFull(f"{len(self._serving)} replies are being written, and no more can. Try again in a minute.")
        return self._read(self._preparer.prepare(prompt, params))

    def close(self) -> None:
        """Cancel every request."""
        for request in list(self._serving):
            request.cancelled.set()

    def _read(self, request: Request) -> Generator[Chunk, None, None]:
        """Run in the reader's thread: let a thread wait for a GPU, then pass on what comes from there."""
        request.progress = Progress("queued", text="Waiting for a GPU")
        self._serving.add(request)
        # With Gradio's context, in which `spaces` finds the visitor whose quota counts.
        threading.Thread(target=copy_context().run, args=(self._answer, request), name="zerogpu", daemon=True).start()
        try:
            for chunk in request.streamer:
                yield chunk if chunk.text or chunk.thought else Chunk(progress=request.progress)
            yield Chunk(finish_reason=request.finish_reason(self._preparer.end_ids), usage=request.usage())
        finally:
            request.cancelled.set()

    def _answer(self, request: Request) -> None:
        prompt = request.prompt
        # Only plain values reach the other process; an event set here would not be seen there, but a close is.
        pieces = self._tokens_from_gpu(prompt.input_ids, prompt.max_new_tokens, request.params.model_dump())
        try:
            with closing(pieces):
                for token_id in pieces:
                    request.progress = None
                    if token_id is not None:
                        request.streamer.put_token(token_id)
                    if request.should_stop:
                        break
        except Exception as error:
            request.streamer.fail(explain_gpu_failure(error))
        else:
            request.streamer.end()
        finally:
            self._serving.discard(request)

    def _write(
        self, input_ids: list[int], max_new_tokens: int, params: dict[str, Any]
    ) -> Generator[int | None, None, None]:
        """Run in the forked process: yield token ids, and None at least every 0.1 s.

        Ends by itself before the GPU is taken away, so that the reply can be continued.
        """
        seconds = gpu_seconds(input_ids, max_new_tokens, params) - _START_S
        try:
            yield from write_tokens(
                self._loaded.model, input_ids, max_new_tokens, GenerationParams.model_validate(params), seconds
            )
        except Exception as error:
            failure = explain_failure(error)
            # Of other errors only the name crosses over to the app's process.
            raise Error(str(failure), title=type(failure).__name__) from error


def explain_gpu_failure(error: Exception) -> ChatError:
    """Return the ChatError to show for what the decorated function raised: Gradio's Error, whose title is its kind."""
    if not isinstance(error, Error):
        logger.error("ZeroGPU gave no GPU.", exc_info=error)
        return EngineUnavailable(f"ZeroGPU gave no GPU ({type(error).__name__}: {error}). Try again in a minute.")
    text = str(error.message)
    if error.title.startswith("ZeroGPU"):
        kind = GenerationFailed if error.title == "ZeroGPU worker error" else EngineUnavailable
        return kind(f"{error.title}: {text.strip().rstrip('.')}. {_ADVICE.get(error.title, 'Try again in a minute.')}")
    if error.title == OutOfMemory.__name__:
        return OutOfMemory(text)
    if error.title == DeviceLost.__name__:  # for its own process only, and the next reply gets another
        return GenerationFailed("The GPU has failed and was given back. Try again.")
    return GenerationFailed(text)
