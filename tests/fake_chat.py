"""The chat in a terminal with a scripted engine: `python -m tests.fake_chat REPLIES [ARGUMENT ...]`.

REPLIES is JSON: for each request a list of texts. null holds the reply there until it is stopped,
{"error": TEXT} is a failure, and "ECHO" says the question.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator, Sequence

from chat import cli
from chat.__main__ import main
from chat.types import Chunk, GenerationFailed
from tests.fakes import FakeEngine


class EchoingEngine(FakeEngine):
    def _run(
        self, number: int, pieces: Sequence[str | Chunk | Exception | threading.Event]
    ) -> Generator[Chunk, None, None]:
        prompt = self.prompts[number]
        question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        return super()._run(number, [question if piece == "ECHO" else piece for piece in pieces])


def create_engine(replies: str) -> FakeEngine:
    return EchoingEngine([[_read_piece(piece) for piece in reply] for reply in json.loads(replies)])


def _read_piece(piece: str | dict[str, str] | None) -> str | Exception | threading.Event:
    if isinstance(piece, dict):
        return GenerationFailed(piece["error"])
    return threading.Event() if piece is None else piece


if __name__ == "__main__":
    engine = create_engine(sys.argv.pop(1))
    cli.create_engine = lambda settings: engine
    sys.exit(main())
