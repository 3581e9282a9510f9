"""A scripted engine: says what it is told to, remembers what it was asked, holds still when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from chat.types import Chunk, GenerationParams, ModelInfo, Prompt, Status, Usage

INFO = ModelInfo(
    "fake/model", "cpu", "float32", 2048, GenerationParams(max_new_tokens=512, temperature=0.7, top_p=0.95)
)


@dataclass
class FakeEngine:
    """Answer the n-th request with the n-th of `replies`, the last one again after that.

    A reply is a list of pieces: a text, a whole Chunk, an exception to raise there, or a
    threading.Event to wait for (with a heartbeat, as a real engine does).
    """

    replies: Sequence[Sequence[str | Chunk | Exception | threading.Event]] = (("Hello", " there."),)
    info: ModelInfo = INFO
    state: Status | None = None
    prompts: list[Prompt] = field(default_factory=list)
    params: list[GenerationParams] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    """Numbers of the requests that were stopped before their end."""

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        number = len(self.prompts)
        self.prompts.append(prompt)
        self.params.append(params)
        return self._run(number, self.replies[min(number, len(self.replies) - 1)])

    def _run(
        self, number: int, pieces: Sequence[str | Chunk | Exception | threading.Event]
    ) -> Generator[Chunk, None, None]:
        started, tokens = time.perf_counter(), 0
        try:
            for piece in pieces:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, threading.Event):
                    while not piece.wait(0.05):
                        yield Chunk()
                    continue
                tokens += 1
                yield Chunk(text=piece) if isinstance(piece, str) else piece
        except GeneratorExit:
            self.closed.append(number)
            raise
        seconds = time.perf_counter() - started
        yield Chunk(finish_reason="stop", usage=Usage(7, 0, tokens, seconds, 25.0))

    def status(self) -> Status:
        return self.state or Status("ready", info=self.info)

    def close(self) -> None:
        pass
