"""The remote engine on a real server, `transformers serve`, with a tiny random model."""

from __future__ import annotations

import os
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from chat.types import GenerationParams, InvalidRequest
from tests.engine.models import tiny_llama
from tests.engine.remote.conftest import Connect, ask, read, settle, until_text

GREEDY = GenerationParams(temperature=0, max_new_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    model, tokenizer = tiny_llama()
    # No end tokens, so that every reply has its full length.
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [Path(sysconfig.get_path("scripts")) / "transformers", "serve", folder, "--port", str(port)]
    server = subprocess.Popen(
        [*map(str, command), "--device", "cpu"],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    with server.stderr:
        for line in server.stderr:
            if "running on" in line:
                break
        yield f"http://localhost:{port}/v1"
        server.terminate()
        server.wait()


def test_a_reply_streams_and_its_cost_is_counted(connect: Connect, url: str, folder: Path) -> None:
    engine = connect(url)
    texts = [chunk.text for chunk in engine.stream(ask(), GREEDY) if chunk.text]
    reply = read(engine.stream(ask(), GREEDY))
    assert len(texts) > 3
    assert "".join(texts) == reply.content
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert (reply.usage.completion_tokens, reply.usage.prompt_tokens > 0) == (12, True)
    info = settle(engine, "ready").info
    assert info is not None
    assert info.name == str(folder)


def test_a_plain_text_goes_on(connect: Connect, url: str) -> None:
    reply = read(connect(url).stream("The capital of France", GREEDY))
    assert reply.content
    assert reply.finish_reason == "length"


def test_a_stop_text_is_not_shown(connect: Connect, url: str) -> None:
    """S12"""
    engine = connect(url)
    whole = read(engine.stream(ask(), GREEDY)).content
    stop = whole[len(whole) // 2 :][:2]
    reply = read(engine.stream(ask(), GREEDY.model_copy(update={"stop": (stop,)})))
    assert reply.content == whole[: whole.index(stop)]
    assert reply.finish_reason == "stop"


def test_a_stop_in_mid_reply_leaves_the_server_free(connect: Connect, url: str) -> None:
    """T5"""
    engine = connect(url)
    stream = engine.stream(ask(), GenerationParams(max_new_tokens=450))
    assert until_text(stream)
    stream.close()
    assert read(engine.stream(ask(), GREEDY)).content


def test_what_the_server_does_not_know_is_refused_in_its_own_words(connect: Connect, url: str) -> None:
    engine = connect(url)
    with pytest.raises(InvalidRequest, match="top_k") as refusal:
        read(engine.stream(ask(), GenerationParams(top_k=5)))
    assert refusal.value.param == "top_k"
    with pytest.raises(InvalidRequest, match="Retry it instead"):
        read(engine.stream([*ask(), {"role": "assistant", "content": "The"}], GREEDY))
    with pytest.raises(InvalidRequest, match="other"):
        read(connect(url, model="other").stream(ask(), GREEDY))


def test_a_named_tokenizer_keeps_within_the_window(connect: Connect, url: str, folder: Path) -> None:
    """C1, C3"""
    engine = connect(url, tokenizer=str(folder))
    info = settle(engine, "ready").info
    assert info is not None
    assert info.window == 512
    old = [m for _ in range(20) for m in (*ask("old " * 10), {"role": "assistant", "content": "Yes."})]
    usage = read(engine.stream([*old, *ask("Why?")], GREEDY)).usage
    assert usage is not None
    assert usage.messages_left_out > 0
    assert usage.prompt_tokens + 12 <= 512
