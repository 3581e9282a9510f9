"""Failures of loading, in words that say what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from chat.engine.load_errors import explain_load_failure, explain_tokenizer_failure, require
from chat.types import ModelLoadError, ModelNotFound


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "There is not enough memory for m. Close other programs"),
        (MemoryError(), "There is not enough memory for m"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you tried to ..."),
            "There is not enough memory for m",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "The disk is full at /x/y. Free some space"),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full. Free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "no permission to read or write at /x. Change it"),
        (ImportError("This needs bitsandbytes: `pip install bitsandbytes`"), "m needs a package that is missing. This"),
        (OfflineModeIsEnabled("offline"), "The hub cannot be reached, and m is not whole in the cache"),
        (LocalEntryNotFoundError("nothing there"), "The hub cannot be reached, and m is not whole in the cache"),
        (ConnectionResetError("reset"), "The hub cannot be reached"),
    ],
)
def test_each_known_failure_has_its_advice(error: Exception, advice: str) -> None:
    failure = explain_load_failure(error, "m")
    assert isinstance(failure, ModelLoadError)
    assert advice in str(failure)


def test_the_telling_error_is_found_behind_the_vague_ones_that_wrap_it() -> None:
    vague = ValueError("the tokenizer could not be loaded")
    vague.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "The disk is full" in str(explain_load_failure(vague, "m"))


def test_an_error_that_is_advice_already_stays_as_it_is() -> None:
    error = ModelNotFound("There is no folder m.")
    assert explain_load_failure(error, "m") is error


def test_an_error_without_words_still_says_something() -> None:
    assert str(explain_load_failure(KeyError(), "m")) == "m could not be loaded. KeyError: no further details"


@pytest.mark.parametrize(
    ("file", "package"),
    [("spiece.model", "sentencepiece"), ("qwen.tiktoken", "tiktoken"), ("tekken.json", "mistral-common")],
)
def test_a_tokenizer_file_names_the_package_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, package: str
) -> None:
    """L5."""
    (tmp_path / file).touch()
    monkeypatch.setattr("chat.engine.load_errors.find_spec", lambda _: None)
    assert f"The package {package} is needed to read {file}. Run: pip install {package}" in str(
        explain_tokenizer_failure(tmp_path)
    )


def test_a_tokenizer_that_lacks_nothing_is_not_blamed(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    assert explain_tokenizer_failure(tmp_path) is None


def test_a_package_that_is_there_is_not_missed() -> None:
    require("torch", "to test")
    with pytest.raises(
        ModelLoadError, match=r"The package no_such_package is needed to test. Run: pip install no_such"
    ):
        require("no_such_package", "to test")
