"""Weight files, judged by their names and headers, before any of their gigabytes are read."""

from __future__ import annotations

import fnmatch
import json
import re
import struct
from collections.abc import Collection, Iterable
from math import prod
from pathlib import Path
from typing import TypedDict
from zipfile import is_zipfile

import torch
from transformers.integrations.gguf.reader import GgufHeader

from chat.types import ModelLoadError

LAYOUTS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)
"""The whole file, or the index and its shards, in the order in which transformers looks for them."""

STORED_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Stored types that are turned into the model's dtype; others (integers, float8) stay as they are."""

GGUF_HEAD = b"GGUF"
POINTER_HEAD = b"version https://git-lfs"
_SPLIT_GGUF = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class Tensor(TypedDict):
    """What a safetensors header tells of one tensor; the offsets count from the end of the header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def choose_weights(names: Collection[str]) -> list[str]:
    """Return those of a folder's file names that hold the model's weights, each weight once."""
    for whole, index, shards in LAYOUTS:
        if whole in names:
            return [whole]
        if index in names:
            return [index, *fnmatch.filter(names, shards)]
    return []


def find_weights(folder: Path) -> list[Path]:
    """Return the files that hold the weights in `folder`. Raises: ModelLoadError if there are none, or not all."""
    names = choose_weights({file.name for file in folder.iterdir()})
    if not names:
        raise ModelLoadError(_no_weights(folder))
    index = folder / names[0]
    if index.suffix != ".json":
        return [index]
    shards = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    for name in shards:
        if not (folder / name).is_file():
            raise ModelLoadError(f"{folder / name} is missing: {index.name} names it. Download the model again.")
    return [folder / name for name in shards]


def _no_weights(folder: Path) -> str:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs:
        return f"{folder} holds GGUF files. Name the one to load: --model {folder}:{ggufs[0]}"
    return f"{folder} holds no weights: neither model.safetensors nor pytorch_model.bin. Download the model again."


def refuse_pointers(files: Iterable[Path]) -> None:
    """Check that no file is a Git LFS pointer in place of the real one. Raises: ModelLoadError."""
    for file in files:
        with file.open("rb") as opened:
            head = opened.read(len(POINTER_HEAD))
        if head == POINTER_HEAD:
            raise ModelLoadError(
                f"{file} is only a Git LFS pointer of {file.stat().st_size} bytes, not the file itself. "
                "Run `git lfs pull` in its folder, or download the model again."
            )


def count_bytes(files: Iterable[Path], dtype: torch.dtype) -> int:
    """Return how many bytes the weights in `files` take at least, once they are loaded as `dtype`.

    Raises: ModelLoadError if a file is cut short.
    """
    return sum(_count_file_bytes(file, dtype) for file in files)


def _count_file_bytes(file: Path, dtype: torch.dtype) -> int:
    if file.suffix == ".safetensors":
        return sum(_tensor_bytes(tensor, dtype) for tensor in read_safetensors_header(file).values())
    if file.suffix == ".gguf":
        return sum(prod(tensor.shape) for tensor in read_gguf_header(file).tensors) * dtype.itemsize
    # Nothing tells how a pickle stores them without reading it, so this counts the least: as float32.
    return _size_of_pickle(file) * dtype.itemsize // torch.float32.itemsize


def _size_of_pickle(file: Path) -> int:
    """Return the size of a .bin file. Raises: ModelLoadError if it is a zip archive, as they are, without its end."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        is_archive = opened.read(2) == b"PK"
    if size == 0 or (is_archive and not is_zipfile(file)):
        raise _cut_short(file, size)
    return size


def _tensor_bytes(tensor: Tensor, dtype: torch.dtype) -> int:
    start, end = tensor["data_offsets"]
    return prod(tensor["shape"]) * dtype.itemsize if tensor["dtype"] in STORED_FLOATS else end - start


def read_safetensors_header(file: Path) -> dict[str, Tensor]:
    """Return each tensor's dtype, shape and data_offsets by its name.

    The format: 8 bytes with the header's length, the header as JSON, then the data.
    Raises: ModelLoadError if the file is shorter or longer than its header says.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if 8 + length > size:
            raise _cut_short(file, size)
        try:
            header: dict[str, Tensor] = json.loads(opened.read(length))
        except ValueError:
            raise _cut_short(file, size) from None
    header.pop("__metadata__", None)
    whole = 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if size != whole:
        raise _cut_short(file, size, whole)
    return header


def read_gguf_header(file: Path) -> GgufHeader:
    """Return the file's architecture and tensors. Raises: ModelLoadError if it is cut short, or only a part."""
    if _SPLIT_GGUF.search(file.name):
        raise ModelLoadError(
            f"{file.name} is one part of a model. Join the parts with `llama-gguf-split --merge` and load the result."
        )
    size = file.stat().st_size
    with file.open("rb") as opened:
        if opened.read(len(GGUF_HEAD)) != GGUF_HEAD:
            raise _cut_short(file, size)
    try:
        header = GgufHeader.from_file(str(file))
    except (struct.error, IndexError, UnicodeDecodeError):
        raise _cut_short(file, size) from None
    whole = header.data_start + max((tensor.offset + tensor.nbytes for tensor in header.tensors), default=0)
    if size < whole:
        raise _cut_short(file, size, whole)
    return header


def _cut_short(file: Path, size: int, whole: int | None = None) -> ModelLoadError:
    there = f"{size:,} bytes" + (f" of {whole:,}" if whole else "")
    return ModelLoadError(f"{file} is damaged or cut short: it has {there}. Delete it and download it again.")
