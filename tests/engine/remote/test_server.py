from __future__ import annotations

from contextlib import closing

import pytest

from chat.engine import create_engine
from chat.engine.remote import find_server
from chat.settings import EngineSettings, read_settings
from chat.types import GenerationParams
from tests.engine.remote.conftest import ask, read
from tests.upstream import Upstream


def test_an_address_makes_an_engine_on_that_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_ENGINE_KEY", "sk-secret")
    with Upstream() as upstream:
        settings = read_settings(EngineSettings, "app.py", ["--engine", upstream.url, "--model", "big/model"])
        with closing(create_engine(settings)) as engine:
            assert read(engine.stream(ask(), GenerationParams())).content == "Hello there."
    assert upstream.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(settings)


def test_the_key_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(EngineSettings, "app.py", ["--engine-key", "sk-secret"])
    assert "unrecognized arguments: --engine-key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "words"),
    [("host:8000", "http://host:8000/v1"), ("http://", "http://host:8000/v1"), ("http://host:99999/v1", "Port")],
)
def test_another_engine_is_refused_with_what_is_allowed(
    capsys: pytest.CaptureFixture[str], engine: str, words: str
) -> None:
    with pytest.raises(SystemExit):
        read_settings(EngineSettings, "app.py", ["--engine", engine])
    assert words in capsys.readouterr().err


def test_the_hub_gets_the_persons_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_login")
    server = find_server(EngineSettings(engine="hub", model="a/b"))
    assert server.host == "router.huggingface.co"
    assert server.key == "hf_login"
    assert find_server(EngineSettings(engine="hub", engine_key="hf_other")).key == "hf_other"
    assert find_server(EngineSettings(engine="http://127.0.0.1:1/v1")).key == ""
