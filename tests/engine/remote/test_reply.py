from __future__ import annotations

import time

import pytest

from chat.engine.remote.reply import IncomingReply


@pytest.mark.parametrize(("second_at", "speed"), [(10.001, 0.0), (12.0, 0.5)])
def test_only_pieces_that_came_apart_have_a_speed(monkeypatch, second_at, speed):
    times = iter((10.0, second_at))
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    reply = IncomingReply((), None, "", started=9.0)
    for finish_reason in (None, "stop"):
        reply.feed({"choices": [{"delta": {"content": "word "}, "finish_reason": finish_reason}]})
    usage = reply.last_chunk(messages_left_out=0).usage
    assert usage is not None
    assert (usage.tokens_per_s, usage.first_token_s) == (speed, 1.0)
