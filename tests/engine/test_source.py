"""What --model may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat.engine.source import find_source, split_gguf
from chat.types import ModelLoadError, ModelNotFound


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("owner/name", ("owner/name", None)),
        ("owner/name:q4/m.gguf", ("owner/name", "q4/m.gguf")),
        ("./folder:m.gguf", ("./folder", "m.gguf")),
        ("C:/models/big:m.gguf", ("C:/models/big", "m.gguf")),
        ("C:/models/big", ("C:/models/big", None)),
    ],
)
def test_a_gguf_file_is_split_off_at_the_last_colon(model: str, parts: tuple[str, str | None]) -> None:
    assert split_gguf(model) == parts


def test_the_path_of_a_gguf_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "a:b.gguf"
    file.touch()
    assert split_gguf(str(file)) == (str(tmp_path), "a:b.gguf")


def test_the_path_of_a_gguf_file_that_is_not_there_is_told_how_to_write_it() -> None:
    with pytest.raises(
        ModelNotFound, match=r"There is no file nowhere/m.gguf. A GGUF file is written folder:file.gguf"
    ):
        split_gguf("nowhere/m.gguf")


def test_a_gguf_file_that_is_not_in_the_folder_is_answered_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "b.gguf").touch()
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"There is no file c.gguf in .*. It holds: a.gguf, b.gguf."):
        find_source(f"{tmp_path}:c.gguf", "", lambda _: None)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelNotFound, match="There is no folder"):
        find_source(str(tmp_path / "model.safetensors"), "", lambda _: None)


def test_a_folder_is_named_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert find_source(".", "", lambda _: None).name == "mine"


def test_an_adapter_that_does_not_name_its_base_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", "ascii")
    with pytest.raises(ModelLoadError, match=r"does not name its base model. Add base_model_name_or_path"):
        find_source(str(tmp_path), "", lambda _: None)
