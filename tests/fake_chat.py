"""The chat in a terminal with a scripted engine: `python -m tests.fake_chat REPLIES [ARGUMENT ...]`.

REPLIES is JSON: for each request a list of texts; null holds the reply there until it is stopped.
"""

from __future__ import annotations

import json
import sys
import threading

from chat.cli import main
from tests.fakes import FakeEngine


def create_engine(replies: str) -> FakeEngine:
    return FakeEngine(
        [[threading.Event() if piece is None else piece for piece in reply] for reply in json.loads(replies)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], create=lambda settings: create_engine(sys.argv[1])))
