"""An engine that can be asked before its model is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TypeAlias

from chat.types import ChatError, Chunk, Engine, GenerationParams, ModelLoadError, Progress, Prompt, Status

Report: TypeAlias = Callable[[Progress], None]


class StartingEngine:
    """Load an engine in the background; requests that come meanwhile wait for it and show the progress."""

    def __init__(self, start: Callable[[Report], Engine]) -> None:
        """Begin loading: `start` runs in a thread of its own and reports its progress."""
        self._status = Status("loading", progress=Progress("loading", text="Starting"))
        self._engine: Engine | None = None
        self._settled = threading.Event()
        threading.Thread(target=self._load, args=(start,), name="load-model", daemon=True).start()

    def _load(self, start: Callable[[Report], Engine]) -> None:
        try:
            self._engine = start(self._report)
        except ChatError as error:
            self._status = Status("failed", error=error)
        except Exception as error:
            self._status = Status("failed", error=ModelLoadError(f"The model could not be loaded. {error!r}"))
            raise
        finally:
            self._settled.set()

    def _report(self, progress: Progress) -> None:
        self._status = Status("loading", progress=progress)

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Stream from the loaded engine; while it loads, wait for it. Raises: ChatError, also if loading failed."""
        if self._settled.is_set():
            return self._ready().stream(prompt, params)
        return self._wait_and_stream(prompt, params)

    def _wait_and_stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        while not self._settled.wait(0.1):
            yield Chunk(progress=self._status.progress)
        yield from self._ready().stream(prompt, params)

    def _ready(self) -> Engine:
        if self._engine is None:
            # A new one each time: a raised exception keeps its frames, and with them the prompt, alive.
            error = self._status.error
            raise type(error)(*error.args) if error else ModelLoadError("The engine is closed.")
        return self._engine

    def status(self) -> Status:
        """Say at once whether the model is loading, ready or failed."""
        return self._engine.status() if self._engine else self._status

    def close(self) -> None:
        """Close the loaded engine."""
        if self._engine:
            self._engine.close()
