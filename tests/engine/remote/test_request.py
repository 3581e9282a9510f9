from __future__ import annotations

import threading

import pytest

from chat.engine.remote.errors import KeyRefused, Overloaded, ReplyCut
from chat.reply import Reply
from chat.types import (
    EngineUnavailable,
    GenerationFailed,
    GenerationParams,
    InvalidRequest,
    ModelNotFound,
    PromptTooLong,
)
from tests.engine.remote.conftest import NONE, Connect, ask, read
from tests.upstream import Cut, End, Refusal, Upstream


def test_only_what_is_set_is_sent(connect: Connect) -> None:
    upstream = Upstream()
    read(connect(upstream).stream(ask(), NONE))
    assert upstream.asked[0] == {
        "model": "big/model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1024,
        "messages": ask(),
    }


def test_every_param_is_sent_under_the_name_servers_know(connect: Connect) -> None:
    upstream = Upstream()
    params = GenerationParams(
        max_new_tokens=5, temperature=0, top_p=0.5, top_k=0, repetition_penalty=1.2, seed=3, stop=("x", "y")
    )
    read(connect(upstream).stream(ask(), params))
    assert (
        upstream.asked[0].items()
        >= {
            "max_tokens": 5,
            "temperature": 0,
            "top_p": 0.5,
            "top_k": -1,
            "repetition_penalty": 1.2,
            "seed": 3,
            "stop": ["x", "y"],
        }.items()
    )


def test_settings_stand_behind_params(connect: Connect) -> None:
    upstream = Upstream()
    read(connect(upstream, temperature=0.5, max_new_tokens=9).stream(ask(), GenerationParams(max_new_tokens=5)))
    assert (upstream.asked[0]["temperature"], upstream.asked[0]["max_tokens"]) == (0.5, 5)


@pytest.mark.parametrize(
    ("refusal", "error", "words"),
    [
        (Refusal(401, "Incorrect API key"), KeyRefused, "CHAT_ENGINE_KEY"),
        (Refusal(403, "Forbidden"), KeyRefused, "CHAT_ENGINE_KEY"),
        (Refusal(402, "Pay first."), EngineUnavailable, "credit"),
        (Refusal(404, "The model `m` does not exist."), ModelNotFound, "--model"),
        (Refusal(404, {"detail": "Not Found"}), EngineUnavailable, "/v1"),
        (Refusal(400, "temperature must be at most 2"), InvalidRequest, "at most 2"),
        (Refusal(429, {"error": {"type": "x", "code": "insufficient_quota"}}), EngineUnavailable, "credit"),
        (Refusal(503, "Busy.", {"Retry-After": "3600"}), Overloaded, "overloaded"),
        (Refusal(500, "CUDA out of memory"), GenerationFailed, "CUDA out of memory"),
        (Refusal(308, "", {"Location": "https://there/v1"}), EngineUnavailable, "https://there/v1"),
        (Refusal(502, "Bad gateway"), EngineUnavailable, "behind"),
    ],
)
def test_a_refusal_says_what_to_do(connect: Connect, refusal: Refusal, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read(connect(Upstream([refusal])).stream(ask(), NONE))


def test_a_refused_param_is_named(connect: Connect) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(connect(Upstream([Refusal(400, "temperature: too hot")])).stream(ask(), GenerationParams(temperature=5)))
    assert refusal.value.param == "temperature"


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_server_is_asked_again_and_the_reader_sees_why_it_waits(connect: Connect, status: int) -> None:
    busy = Refusal(status, "Too busy.", {"Retry-After": "0.3"})
    chunks = list(connect(Upstream([busy, busy, ["Hello"]])).stream(ask(), NONE))
    waits = [chunk.progress for chunk in chunks if chunk.progress]
    assert {wait.kind for wait in waits} == {"queued"}
    assert "Too busy." in waits[0].text
    assert read(chunks).content == "Hello"


def test_a_wait_can_be_stopped(connect: Connect) -> None:
    upstream = Upstream([Refusal(503, "Too busy.", {"Retry-After": "30"}), ["Hello"]])
    engine = connect(upstream)
    stream = engine.stream(ask(), NONE)
    next(chunk for chunk in stream if chunk.progress)
    stream.close()
    assert read(engine.stream(ask(), NONE)).content == "Hello"
    assert len(upstream.asked) == 2


@pytest.mark.parametrize("broken", [Cut, End])
def test_text_that_came_before_the_connection_broke_is_kept(connect: Connect, broken: type[Cut | End]) -> None:
    """S1"""
    upstream = Upstream([["Hello be", broken], ["Good."]])
    engine = connect(upstream)
    reply = Reply()
    with pytest.raises(ReplyCut, match="kept"):
        read(engine.stream(ask(), GenerationParams(stop=("beta",))), reply)
    assert reply.content == "Hello be"
    assert read(engine.stream(ask(), NONE)).content == "Good."


def test_a_connection_that_broke_before_the_reply_is_no_cut_reply(connect: Connect) -> None:
    with pytest.raises(EngineUnavailable, match="before it answered"):
        read(connect(Upstream([[Cut]])).stream(ask(), NONE))


@pytest.mark.parametrize("event", [{"error": {"message": "CUDA error"}}, {"error": "CUDA error"}])
def test_an_error_inside_the_stream_is_told_and_the_text_kept(connect: Connect, event: dict[str, object]) -> None:
    """S1"""
    reply = Reply()
    with pytest.raises(GenerationFailed, match="CUDA error"):
        read(connect(Upstream([["Hello", event, " there"]])).stream(ask(), NONE), reply)
    assert reply.content == "Hello"


def test_a_content_filter_is_told(connect: Connect) -> None:
    end = {"choices": [{"delta": {}, "finish_reason": "content_filter"}]}
    with pytest.raises(GenerationFailed, match="filter"):
        read(connect(Upstream([["Hello", end]])).stream(ask(), NONE))


def test_a_server_that_falls_silent_is_given_up(connect: Connect) -> None:
    """S2"""
    upstream = Upstream([["Hello", threading.Event()]])
    reply = Reply()
    with pytest.raises(GenerationFailed, match="silent"):
        read(connect(upstream, server={"silence_s": 0.5}).stream(ask(), NONE), reply)
    assert reply.content == "Hello"


def test_a_last_reply_goes_on(connect: Connect) -> None:
    """T9"""
    upstream = Upstream([["is Paris."]])
    prompt = [*ask(), {"role": "assistant", "content": "The capital "}]
    assert read(connect(upstream).stream(prompt, NONE)).content == "is Paris."
    body = upstream.asked[0]
    assert body["messages"] == prompt
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_a_thought_goes_on_as_a_thought(connect: Connect) -> None:
    """T9"""
    upstream = Upstream([[" see.</think>42"]])
    prompt = [*ask(), {"role": "assistant", "content": "", "thought": "Let me"}]
    reply = read(connect(upstream).stream(prompt, NONE))
    assert (reply.thought, reply.content) == (" see.", "42")
    assert upstream.asked[0]["messages"][-1]["content"] == "<think>\nLet me"


def test_a_server_that_cannot_go_on_with_a_reply_is_named(connect: Connect) -> None:
    refusal = Refusal(422, {"detail": "Unexpected fields in the request: {'continue_final_message'}"})
    prompt = [*ask(), {"role": "assistant", "content": "The capital "}]
    with pytest.raises(InvalidRequest, match="Retry it instead"):
        read(connect(Upstream([refusal])).stream(prompt, NONE))


def test_what_a_server_refuses_is_left_out_from_then_on(connect: Connect) -> None:
    upstream = Upstream(
        [
            Refusal(400, "Unrecognized request argument supplied: stream_options"),
            Refusal(400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
            ["Hello"],
        ]
    )
    engine = connect(upstream)
    assert read(engine.stream(ask(), NONE)).content == "Hello"
    assert read(engine.stream(ask(), NONE)).content == "Hello"
    assert len(upstream.asked) == 4
    assert "stream_options" not in upstream.asked[3]
    assert (upstream.asked[3].get("max_tokens"), upstream.asked[3]["max_completion_tokens"]) == (None, 1024)


def test_a_limit_that_is_too_high_for_the_server_is_told(connect: Connect) -> None:
    with pytest.raises(InvalidRequest, match="at most 512") as refusal:
        read(connect(Upstream([Refusal(400, "max_tokens must be at most 512")])).stream(ask(), NONE))
    assert refusal.value.param == "max_tokens"


def test_a_system_text_that_the_model_has_no_role_for_is_put_into_the_first_question(connect: Connect) -> None:
    """C4"""
    upstream = Upstream([Refusal(400, "System role not supported"), ["Hello"]])
    prompt = [{"role": "system", "content": "Be brief."}, *ask("Why?")]
    assert read(connect(upstream).stream(prompt, NONE)).content == "Hello"
    assert upstream.asked[1]["messages"] == ask("Be brief.\n\nWhy?")


def test_messages_of_the_same_role_are_sent_as_one(connect: Connect) -> None:
    """C4"""
    upstream = Upstream()
    read(connect(upstream).stream([*ask("One."), *ask("Two.")], NONE))
    assert upstream.asked[0]["messages"] == ask("One.\n\nTwo.")


def test_oldest_turns_are_left_out_by_the_servers_count_of_tokens(connect: Connect) -> None:
    """C3"""
    upstream = Upstream(count=lambda body: sum(len(m["content"]) for m in body["messages"]))
    old = [m for n in range(10) for m in (*ask(f"{n}" * 300), {"role": "assistant", "content": "x" * 300})]
    prompt = [{"role": "system", "content": "Be brief."}, *old, *ask("Why?")]
    reply = read(connect(upstream).stream(prompt, GenerationParams(max_new_tokens=2000)))
    sent = upstream.asked[0]
    assert [m["role"] for m in sent["messages"][:2]] == ["system", "user"]
    assert sent["messages"][1]["content"] == "5" * 300
    assert sent["messages"][-1]["content"] == "Why?"
    assert sent["max_tokens"] == 4096 - (9 + 5 * 600 + 4)
    assert reply.usage is not None
    assert reply.usage.messages_left_out == 10


def test_a_newest_message_that_is_too_long_is_refused_with_both_numbers(connect: Connect) -> None:
    """C2"""
    upstream = Upstream(count=lambda body: len(body["messages"][-1]["content"]))
    with pytest.raises(PromptTooLong, match=r"5,000 tokens.* 4,096"):
        read(connect(upstream).stream(ask("x" * 5000), NONE))
    assert upstream.asked == []


def test_oldest_turns_are_left_out_when_the_server_finds_them_too_long(connect: Connect) -> None:
    """C3"""
    too_long = Refusal(400, "This model's maximum context length is 4096 tokens.")
    upstream = Upstream([too_long, too_long, ["Hello"]])
    old = [m for n in range(5) for m in (*ask(f"{n}"), {"role": "assistant", "content": "x"})]
    reply = read(connect(upstream).stream([*old, *ask("Why?")], NONE))
    assert [body["messages"][0]["content"] for body in upstream.asked] == ["0", "1", "3"]
    assert reply.usage is not None
    assert reply.usage.messages_left_out == 6


def test_a_message_that_the_server_finds_too_long_alone_is_refused(connect: Connect) -> None:
    """C2"""
    too_long = Refusal(400, {"error": {"message": "Too many.", "type": "exceed_context_size_error"}})
    with pytest.raises(PromptTooLong, match="Shorten it"):
        read(connect(Upstream([too_long])).stream(ask(), NONE))


def test_the_reply_is_shortened_first_where_the_server_counts_it(connect: Connect) -> None:
    """C2"""
    words = "maximum context length is 4096 tokens, you requested 4000 in the messages, 1024 in the completion"
    upstream = Upstream([Refusal(400, words), ["Hello"]])
    read(connect(upstream).stream(ask(), NONE))
    assert [body["max_tokens"] for body in upstream.asked] == [1024, 256]
