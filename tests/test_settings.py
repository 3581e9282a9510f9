"""Settings: what is refused before anything is loaded."""

from __future__ import annotations

import pytest

from chat.settings import EngineSettings, read_settings


@pytest.mark.parametrize("engine", ["hub", "http://localhost:8000/v1"])
@pytest.mark.parametrize("flags", [["--quantize", "int8"], ["--compile"]])
def test_how_to_load_a_model_is_not_asked_of_a_server(
    engine: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        read_settings(EngineSettings, "app.py", ["--engine", engine, *flags])
    assert exit_.value.code == 2
    assert "With this --engine the model is loaded by a server: set it there." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "What is compiled answers one at a time: add --engine direct."),
        (["--engine", "direct", "--quantize", "int4"], "Packed weights cannot be compiled"),
    ],
)
def test_what_cannot_be_compiled_is_not_loaded(
    flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_settings(EngineSettings, "app.py", ["--compile", *flags])
    assert reason in capsys.readouterr().err


def test_how_to_load_a_model_is_also_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_QUANTIZE", "int4")
    assert read_settings(EngineSettings, "app.py", []).quantize == "int4"
    monkeypatch.delenv("CHAT_QUANTIZE")
    monkeypatch.setenv("CHAT_COMPILE", "1")
    assert read_settings(EngineSettings, "app.py", ["--engine", "direct"]).compile
