"""Requests in a batch, but those with a seed beside it."""

from __future__ import annotations

import threading
from collections.abc import Generator

from chat.types import Chunk, Engine, GenerationParams, Prompt, Status


class MixedEngine:
    """Two engines on one model. In a batch rounding depends on the company, so the same seed may give another text."""

    def __init__(self, batched: Engine, direct: Engine, defaults: GenerationParams) -> None:
        """`defaults` are the model's, for params that are unset in a request."""
        self._batched, self._direct, self._defaults = batched, direct, defaults
        # Both encode with one tokenizer, which may change its own settings meanwhile, so one thread at a time.
        self._encoding = threading.Lock()

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Stream from the engine that keeps what `params` promise. Raises: what that one raises."""
        seeded = params.over(self._defaults).seed is not None
        with self._encoding:
            return (self._direct if seeded else self._batched).stream(prompt, params)

    def status(self) -> Status:
        """Say at once whether both engines can answer."""
        direct = self._direct.status()
        return direct if direct.state == "failed" else self._batched.status()

    def close(self) -> None:
        """Close both engines."""
        self._batched.close()
        self._direct.close()
