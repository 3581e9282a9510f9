from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import wait
from contextlib import closing

import pytest

from chat.engine.remote import engine as remote
from chat.engine.remote.errors import ReplyCut
from chat.reply import Reply
from chat.types import (
    Chunk,
    EngineUnavailable,
    GenerationFailed,
    GenerationParams,
    InvalidRequest,
    ModelNotFound,
)
from tests.engine.remote.conftest import NONE, Connect, ask, read, settle, until_text
from tests.upstream import Refusal, Thought, Upstream


def test_a_reply_comes_in_pieces_and_ends_with_its_cost(connect: Connect) -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}
    go_on = threading.Event()
    stream = connect(Upstream([["Hello", go_on, " there."]], usage=usage)).stream(ask(), NONE)
    assert until_text(stream) == "Hello"
    go_on.set()
    chunks = [chunk for chunk in stream if chunk != Chunk()]
    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [(" there.", None), ("", "stop")]
    cost = chunks[-1].usage
    assert cost is not None
    assert (cost.prompt_tokens, cost.cached_tokens, cost.completion_tokens) == (30, 16, 2)
    assert cost.first_token_s > 0


def test_pieces_are_counted_where_the_server_does_not_count(connect: Connect) -> None:
    reply = read(connect(Upstream([["a", "b", "c"]], usage=None)).stream(ask(), NONE))
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 3


def test_the_length_limit_is_told(connect: Connect) -> None:
    end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    assert read(connect(Upstream([["a", end]])).stream(ask(), NONE)).finish_reason == "length"


def test_a_line_separator_inside_a_word_does_not_end_the_reply(connect: Connect) -> None:
    """H2"""
    text = "a\u2028b\x85c\x1dd\u2029\r\n"
    assert read(connect(Upstream([[text, "e"]])).stream(ask(), NONE)).content == text + "e"


def test_half_a_surrogate_pair_is_sent(connect: Connect) -> None:
    upstream = Upstream()
    read(connect(upstream).stream(ask("\ud83d"), NONE))
    assert upstream.asked[0]["messages"] == ask("\ud83d")


def test_a_plain_text_is_continued_as_it_stands(connect: Connect) -> None:
    upstream = Upstream([[" <think>x</think> upon a time"]])
    assert read(connect(upstream).stream("Once", NONE)).content == " <think>x</think> upon a time"
    assert upstream.paths == ["/v1/completions"]
    assert upstream.asked[0]["prompt"] == "Once"


def test_nothing_to_answer_is_refused_at_once(connect: Connect) -> None:
    with pytest.raises(InvalidRequest, match="no message"):
        connect(Upstream()).stream([], NONE)


@pytest.mark.parametrize(
    "pieces",
    [
        [Thought("Let me see."), "42"],
        [Thought("Let me see.", "reasoning"), "\n", "\n42"],
        ["<thi", "nk>Let me", " see.</think", ">\n\n4", "2"],
    ],
)
def test_thoughts_are_told_apart_by_the_server_or_here(connect: Connect, pieces: list[str | Thought]) -> None:
    """S13"""
    reply = read(connect(Upstream([pieces])).stream(ask(), NONE))
    assert (reply.thought, reply.content) == ("Let me see.", "42")


def test_a_thought_that_the_template_opens_is_a_thought(connect: Connect) -> None:
    """S13"""
    template = ["<|user|>", "?", "<|assistant|>", "<th", "ink>", "Ċ"]
    upstream = Upstream([["\nLet me see.", "</think>", "42"]], count=lambda body: 6, token_texts=template)
    reply = read(connect(upstream).stream(ask(), NONE))
    assert (reply.thought, reply.content) == ("Let me see.", "42")


def test_a_template_that_closes_the_thought_leaves_the_answer(connect: Connect) -> None:
    """S13"""
    template = ["<|assistant|>", "<think>", "\n\n", "</think>", "\n\n"]
    reply = read(connect(Upstream([["42"]], count=lambda body: 6, token_texts=template)).stream(ask(), NONE))
    assert (reply.thought, reply.content) == ("", "42")


def test_a_tag_behind_a_thought_that_the_server_split_is_text(connect: Connect) -> None:
    reply = read(connect(Upstream([[Thought("Hm."), "<think> opens a thought"]])).stream(ask(), NONE))
    assert (reply.thought, reply.content) == ("Hm.", "<think> opens a thought")


def test_a_stop_text_that_the_server_ignores_ends_the_reply(connect: Connect) -> None:
    """S12"""
    upstream = Upstream([["one be", "ta", " gam", "ma two", threading.Event()]])
    reply = read(connect(upstream).stream(ask(), GenerationParams(stop=("beta gamma",))))
    assert (reply.content, reply.finish_reason) == ("one ", "stop")
    assert upstream.someone_left.wait(5)


def test_held_back_text_is_let_out_at_the_end(connect: Connect) -> None:
    reply = read(connect(Upstream([["one be"]])).stream(ask(), GenerationParams(stop=("beta",))))
    assert reply.content == "one be"


def test_a_stop_ends_the_connection_while_nothing_arrives(connect: Connect) -> None:
    """T1, T5"""
    upstream = Upstream([["Hello", threading.Event()]])
    stream = connect(upstream).stream(ask(), NONE)
    assert until_text(stream) == "Hello"
    stream.close()
    assert upstream.someone_left.wait(5)
    assert upstream.left == [0]


def test_a_stop_before_the_first_word_ends_the_connection(connect: Connect) -> None:
    """T5"""
    upstream = Upstream([[threading.Event()], ["Hello"]])
    engine = connect(upstream)
    stream = engine.stream(ask(), NONE)
    while not upstream.asked:
        next(stream)
    stream.close()
    assert upstream.someone_left.wait(5)
    assert read(engine.stream(ask(), NONE)).content == "Hello"


def test_the_reader_gets_a_sign_of_life_while_nothing_arrives(connect: Connect) -> None:
    """T3, T8"""
    go_on = threading.Event()
    stream = connect(Upstream([["Hello", go_on, "!"]])).stream(ask(), NONE)
    until_text(stream)
    assert [next(stream) for _ in range(3)] == [Chunk()] * 3
    go_on.set()
    assert read(stream).content == "!"


def test_a_stream_that_nobody_reads_asks_nothing(connect: Connect) -> None:
    upstream = Upstream()
    engine = connect(upstream)
    engine.stream(ask("unread"), NONE).close()
    read(engine.stream(ask("read"), NONE))
    assert [body["messages"] for body in upstream.asked] == [ask("read")]


def test_the_only_model_is_taken(connect: Connect) -> None:
    info = settle(connect(Upstream()), "ready").info
    assert info is not None
    assert (info.name, info.window) == ("big/model", 4096)


def test_one_of_several_models_has_to_be_named(connect: Connect) -> None:
    models = [{"id": "a"}, {"id": "b"}]
    with pytest.raises(ModelNotFound, match="--model: a, b"):
        read(connect(Upstream(models=models)).stream(ask(), NONE))
    upstream = Upstream(models=models)
    read(connect(upstream, model="b").stream(ask(), NONE))
    assert upstream.asked[0]["model"] == "b"


def test_a_server_without_a_list_of_models_serves_a_named_one(connect: Connect) -> None:
    missing = Refusal(404, {"detail": "Not Found"})
    assert read(connect(Upstream(models=missing), model="m").stream(ask(), NONE)).content == "Hello there."
    with pytest.raises(EngineUnavailable, match="ends in /v1"):
        read(connect(Upstream(models=missing)).stream(ask(), NONE))


def test_the_key_is_sent_and_never_shown(connect: Connect) -> None:
    """L7"""
    upstream = Upstream([Refusal(500, "Bad key sk-secret")])
    engine = connect(upstream, key="sk-secret")
    with pytest.raises(GenerationFailed) as failure:
        read(engine.stream(ask(), NONE))
    assert upstream.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(failure.value)


def test_no_server_gets_a_token_that_was_not_meant_for_it(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    upstream = Upstream()
    read(connect(upstream).stream(ask(), NONE))
    assert "authorization" not in upstream.headers[0]


def test_a_server_that_is_down_is_named_and_found_again_when_it_is_back(connect: Connect) -> None:
    with Upstream() as upstream:
        port, url = upstream.port, upstream.url
    engine = connect(url)
    error = settle(engine, "failed").error
    assert isinstance(error, EngineUnavailable)
    with pytest.raises(EngineUnavailable, match=f"127.0.0.1:{port} does not answer: .*refused"):
        read(engine.stream(ask(), NONE))
    with Upstream(port=port):
        settle(engine, "ready")
        assert read(engine.stream(ask(), NONE)).content == "Hello there."


def test_a_server_that_is_gone_is_looked_for_only_when_somebody_asks_and_not_for_each(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PAUSE_S", 3600)
    with Upstream() as upstream:
        url = upstream.url
    engine = connect(url)
    settle(engine, "failed")
    wait([engine._looking])
    looked = engine._looking
    for _ in range(100):
        engine.status()
    assert engine._looking is looked
    engine._look_again_at = 0
    engine.status()
    assert engine._looking is not looked
    with pytest.raises(EngineUnavailable):
        engine._looking.result(60)


def test_a_server_that_is_back_answers_the_next_message_before_it_was_looked_for(connect: Connect) -> None:
    with Upstream() as upstream:
        port = upstream.port
        engine = connect(upstream.url)
        read(engine.stream(ask(), NONE))
    with pytest.raises(EngineUnavailable):
        read(engine.stream(ask(), NONE))
    settle(engine, "failed")
    with Upstream(port=port):
        assert read(engine.stream(ask(), NONE)).content == "Hello there."
        assert engine.status().state == "ready"


def test_a_server_that_is_killed_in_mid_reply_loses_no_text(connect: Connect) -> None:
    """S1"""
    server, url = _start_server(0)
    engine = connect(url)
    reply = Reply()
    stream = engine.stream(ask(), NONE)
    while not reply.content:
        reply.add(next(stream))
    server.kill()
    server.wait()
    with pytest.raises(ReplyCut):
        read(stream, reply)
    assert reply.content.startswith("word0 ")
    server, _ = _start_server(int(url.split(":")[2].split("/")[0]))
    with closing(engine.stream(ask(), NONE)) as stream:
        assert until_text(stream) == "word0 "
    server.kill()
    server.wait()


def _start_server(port: int) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "tests.upstream", str(port), "50", "1000"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout:
        return server, f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"


def test_a_closed_engine_ends_its_streams_and_leaves_nothing_behind(connect: Connect) -> None:
    upstream = Upstream([["Hello", threading.Event()]])
    engine = connect(upstream)
    before = {thread.name for thread in threading.enumerate()} - {"remote-engine"}
    stream = engine.stream(ask(), NONE)
    until_text(stream)
    engine.close()
    with pytest.raises(GenerationFailed, match="closed"):
        read(stream)
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.stream(ask(), NONE)
    assert upstream.someone_left.wait(5)
    assert {thread.name for thread in threading.enumerate()} == before


def test_twenty_visitors_stream_at_once_and_each_reads_its_own_reply(connect: Connect) -> None:
    """S4, G9"""
    upstream = Upstream([[0.01, f"{n} "] * 30 for n in range(20)])
    engine = connect(upstream)
    settle(engine, "ready")
    replies: dict[int, str] = {}

    def visit() -> None:
        content = read(engine.stream(ask(), NONE)).content
        replies[int(content.split()[0])] = content

    before = threading.active_count()
    visitors = [threading.Thread(target=visit) for _ in range(20)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert replies == {n: f"{n} " * 30 for n in range(20)}
    assert threading.active_count() <= before


def test_visitors_who_leave_end_only_their_own_replies(connect: Connect) -> None:
    """T5"""
    go_on = threading.Event()
    upstream = Upstream([["Hello", go_on, "!"]])
    engine = connect(upstream)
    streams = [engine.stream(ask(), NONE) for _ in range(10)]
    assert [until_text(stream) for stream in streams] == ["Hello"] * 10
    for stream in streams[::2]:
        stream.close()
    while len(upstream.left) < 5:
        assert upstream.someone_left.wait(5)
    go_on.set()
    assert [read(stream).content for stream in streams[1::2]] == ["!"] * 5
    assert sorted(upstream.left) == [0, 2, 4, 6, 8]


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = "import sys, chat.engine.remote; assert not {'torch', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
