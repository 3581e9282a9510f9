from __future__ import annotations

import threading

import pytest

from chat import conversation
from chat.settings import Settings
from chat.types import Chunk, GenerationFailed, GenerationParams, InvalidRequest
from chat.web import turns
from chat.web.limits import Limits
from chat.web.turns import Turns, Visitor
from tests.fakes import FakeEngine

ASKED = [{"role": "user", "content": "Hi"}]
REPLIED = [*ASKED, {"role": "assistant", "content": "Half", "finish_reason": "cancelled"}]


A, B = Visitor("a", "203.0.113.7"), Visitor("b", "198.51.100.1")


def create_turns(engine, **settings):
    return Turns(engine, Limits(Settings(**settings)))


def take(engine, before=(), asked=ASKED):
    return create_turns(engine).take(A, list(before), list(asked), conversation.prompt(asked), GenerationParams())


def fail(turn):
    """Return the updates of a turn that fails after them."""
    updates = []
    with pytest.raises(GenerationFailed, match=r"No\."):
        updates.extend(turn)  # not list(turn), which would lose what came
    return updates


def test_the_last_update_is_whole():
    *growing, last = take(FakeEngine([["One", " two", " three"]]))
    assert not any(update.is_over for update in growing)
    assert last.is_over
    assert last.history == [*ASKED, {"role": "assistant", "content": "One two three", "finish_reason": "stop"}]


def test_updates_do_not_come_faster_however_fast_the_tokens_do(monkeypatch):
    """G1: 3,000 tokens in 3 seconds are at most 15 updates a second, the first and the last."""
    clock = iter(range(10**9))
    monkeypatch.setattr(turns.time, "monotonic", lambda: next(clock) / 2000)
    updates = list(take(FakeEngine([["word "] * 3000])))
    assert 20 < len(updates) <= 3 * 15 + 2
    assert updates[-1].reply.content == "word " * 3000


def test_a_stop_ends_the_turn_with_what_it_has():
    """T1, T9"""
    engine = FakeEngine([["Half", threading.Event()]])
    visitors = create_turns(engine)
    updates = visitors.take(A, [], ASKED, ASKED, GenerationParams())
    assert next(updates).reply.content == ""
    assert next(updates).reply.content == "Half"
    visitors.stop(B)
    visitors.stop(A)
    last = list(updates)[-1]
    assert last.is_over
    assert last.history == REPLIED
    assert engine.closed == [0]
    assert not visitors.is_busy(A)


def test_a_closed_turn_stops_the_engine_and_frees_the_visitor():
    """T1, G11"""
    engine = FakeEngine([["Half", threading.Event()]])
    visitors = create_turns(engine)
    updates = visitors.take(A, [], ASKED, ASKED, GenerationParams())
    next(updates), next(updates)
    updates.close()
    assert engine.closed == [0]
    assert not visitors.is_busy(A)


def test_one_visitor_takes_one_turn_at_a_time():
    """G20"""
    visitors = create_turns(FakeEngine([["One", threading.Event()]]))
    first = visitors.take(A, [], ASKED, ASKED, GenerationParams())
    next(first)
    with pytest.raises(InvalidRequest, match="still being written"):
        next(visitors.take(A, [], ASKED, ASKED, GenerationParams()))
    with pytest.raises(InvalidRequest, match="still being written"):
        visitors.check_idle(A)
    other = visitors.take(B, [], ASKED, ASKED, GenerationParams())
    next(other)
    first.close()
    visitors.check_idle(A)
    other.close()


def test_a_failure_keeps_the_words_that_came():
    """L4"""
    last = fail(take(FakeEngine([["Half", GenerationFailed("No.")]])))[-1]
    assert str(last.error) == "No."
    assert last.history == REPLIED


def test_a_failure_before_the_first_word_changes_nothing():
    before = [{"role": "user", "content": "Earlier"}]
    last = fail(take(FakeEngine([[Chunk(), GenerationFailed("No.")]]), before))[-1]
    assert last.is_over
    assert last.history == before


def test_a_refused_turn_leaves_the_visitor_free():
    def refuse(prompt, params):
        raise InvalidRequest("No.")

    engine = FakeEngine()
    engine.stream = refuse
    visitors = create_turns(engine)
    with pytest.raises(InvalidRequest):
        next(visitors.take(A, [], ASKED, ASKED, GenerationParams()))
    visitors.check_idle(A)


def test_a_reply_that_goes_on_keeps_its_beginning():
    """T9"""
    engine = FakeEngine([[" a whole."]])
    last = list(take(engine, asked=REPLIED))[-1]
    assert last.history == [*ASKED, {"role": "assistant", "content": "Half a whole.", "finish_reason": "stop"}]
    assert engine.prompts[0][-1] == {"role": "assistant", "content": "Half"}


def test_the_engine_gets_the_prompt_and_the_params():
    engine = FakeEngine()
    list(create_turns(engine).take(A, [], ASKED, "A raw text", GenerationParams(seed=1)))
    assert engine.prompts == ["A raw text"]
    assert engine.params == [GenerationParams(seed=1)]
