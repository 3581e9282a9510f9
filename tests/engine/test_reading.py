"""How much of a prompt is read at once."""

from __future__ import annotations

import time
from itertools import count

import pytest

from chat.engine.preparing import Preparer
from chat.engine.reading import PromptReader
from chat.types import GenerationParams
from tests.engine.families import load_family

ASK = [{"role": "user", "content": "word " * 150}]


@pytest.fixture
def read(monkeypatch):
    """Read the prompt on a machine that takes so long for each piece; return the pieces' lengths."""
    loaded, lengths = load_family("llama"), []
    reader, preparer = PromptReader(loaded.model, 0), Preparer(loaded)

    def read(seconds: float) -> list[int]:
        lengths.clear()
        clock = count(step=seconds)
        monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
        reader.read(preparer.prepare(ASK, GenerationParams()))
        return list(lengths)

    hook = loaded.model.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(args[0].shape[1]), with_kwargs=True
    )
    yield read
    hook.remove()


def test_pieces_grow_where_that_is_quick_and_the_next_prompt_begins_with_what_was_learned(read):
    first, second = read(0.1), read(0.1)
    assert first[:4] == [32, 64, 128, 256]
    assert second[0] > first[0]
    assert sum(first) == sum(second)


def test_pieces_shrink_where_one_takes_too_long_for_stop_to_be_heard(read):
    read(0.1)
    assert [read(2.0)[0] for _ in range(3)] == [512, 128, 32]
