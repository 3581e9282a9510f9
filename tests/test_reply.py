from __future__ import annotations

import pytest

from chat import reply as reply_module
from chat.reply import Reply
from chat.types import Chunk, Message, Progress, Usage


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(reply_module.time, "monotonic", lambda: self.now)

    def add(self, reply: Reply, chunk: Chunk, after_s: float) -> None:
        self.now += after_s
        reply.add(chunk)


def test_chunks_become_a_message():
    reply = Reply()
    for chunk in (Chunk(text="Hel"), Chunk(text="lo"), Chunk(finish_reason="stop", usage=Usage(7, 0, 2))):
        reply.add(chunk)
    assert reply.message() == {"role": "assistant", "content": "Hello", "finish_reason": "stop"}
    assert reply.usage == Usage(7, 0, 2)


def test_a_reply_that_has_not_ended_counts_as_stopped():
    """T9"""
    reply = Reply()
    reply.add(Chunk(text="Half a"))
    assert reply.message() == {"role": "assistant", "content": "Half a", "finish_reason": "cancelled"}


def test_its_seconds_go_up_to_the_newest_chunk(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    reply = Reply(_started=clock.now)
    clock.add(reply, Chunk(progress=Progress("queued", 1)), 2.0)
    clock.add(reply, Chunk(text="One"), 1.5)
    clock.now += 10
    assert reply.seconds == 3.5


def test_progress_is_that_of_the_newest_chunk():
    reply = Reply()
    reply.add(Chunk(progress=Progress("queued", 2)))
    assert reply.progress == Progress("queued", 2)
    reply.add(Chunk(text="Hello"))
    assert reply.progress is None


def test_a_thought_takes_from_its_first_word_to_the_answers(monkeypatch: pytest.MonkeyPatch):
    clock, reply = Clock(monkeypatch), Reply()
    clock.add(reply, Chunk(), 5)
    clock.add(reply, Chunk(thought="Hm"), 5)
    clock.add(reply, Chunk(), 1)
    clock.add(reply, Chunk(thought="."), 1)
    clock.add(reply, Chunk(text="Yes"), 1)
    clock.add(reply, Chunk(text=".", finish_reason="stop"), 5)
    assert (reply.thought, reply.content, reply.thought_s) == ("Hm.", "Yes.", 3)


def test_a_thought_ends_with_the_reply(monkeypatch: pytest.MonkeyPatch):
    """G13"""
    clock, reply = Clock(monkeypatch), Reply()
    clock.add(reply, Chunk(thought="Hm"), 5)
    clock.add(reply, Chunk(finish_reason="length"), 2)
    assert reply.message() == {
        "role": "assistant",
        "content": "",
        "thought": "Hm",
        "thought_s": 2,
        "finish_reason": "length",
    }


def test_a_reply_can_go_on_from_a_message(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    message: Message = {"role": "assistant", "content": "", "thought": "Hm", "thought_s": 2.0}
    reply = Reply.going_on_from(message)
    clock.add(reply, Chunk(thought=" so."), 5)
    clock.add(reply, Chunk(text="Yes", finish_reason="stop"), 1)
    assert (reply.thought, reply.content, reply.thought_s) == ("Hm so.", "Yes", 3)
    assert message["thought"] == "Hm"
