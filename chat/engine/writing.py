"""One reply as the bare token ids that a model writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import torch
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from chat.engine.sampling import generate
from chat.engine.streamer import HEARTBEAT_S
from chat.types import GenerationParams


def write_tokens(
    model: PreTrainedModel, input_ids: Sequence[int], max_new_tokens: int, params: GenerationParams, seconds: float
) -> Generator[int | None, None, None]:
    """Yield the ids as they are written, for so many seconds at most, and None at least every 0.1 s.

    Closing the generator ends the writing, and waits for its end. Raises: what the model raised.
    """
    stopped, until = threading.Event(), time.monotonic() + seconds
    tokens = _TokenQueue()
    with ThreadPoolExecutor(1, "write-tokens") as pool:
        writing = pool.submit(
            generate,
            model,
            input_ids,
            params,
            max_new_tokens,
            tokens,
            lambda: stopped.is_set() or time.monotonic() > until,
        )
        writing.add_done_callback(lambda _: tokens.ids.put(None))
        try:
            while not (writing.done() and tokens.ids.empty()):
                yield tokens.next()
        finally:
            stopped.set()
    writing.result()


class _TokenQueue(BaseStreamer):
    def __init__(self) -> None:
        self.ids: SimpleQueue[int | None] = SimpleQueue()
        self._next_is_prompt = True

    def put(self, value: torch.Tensor) -> None:
        """Take the next ids, shape (1,) or (1, n). The first call holds the prompt and is skipped."""
        if not self._next_is_prompt:
            for token_id in value.flatten().tolist():
                self.ids.put(token_id)
        self._next_is_prompt = False

    def end(self) -> None:
        """Do nothing: generate is known to be over when it returns."""

    def next(self) -> int | None:
        """Return the next id, or None after 0.1 s without any."""
        try:
            return self.ids.get(timeout=HEARTBEAT_S)
        except Empty:
            return None
