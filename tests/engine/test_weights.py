"""Weight files, judged by their names and headers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from chat.engine.source import find_source
from chat.engine.weights import count_bytes, find_weights, read_gguf_header
from chat.types import ModelLoadError
from tests.engine.models import save_gguf, tiny_llama

TENSORS = {"halves": torch.ones(4, 8, dtype=torch.float16), "numbers": torch.ones(16, dtype=torch.int8)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "model.safetensors"
    save_file(TENSORS, file)
    return file


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4 * 8 * 4 + 16), (torch.bfloat16, 4 * 8 * 2 + 16)])
def test_memory_is_counted_in_the_type_that_is_loaded(file: Path, dtype: torch.dtype, size: int) -> None:
    assert count_bytes([file], dtype) == size


def test_a_gguf_files_memory_is_counted_unpacked(tmp_path: Path) -> None:
    """L9: packed weights grow when they are loaded."""
    model, tokenizer = tiny_llama(tie_word_embeddings=False)
    save_gguf(model, tokenizer, tmp_path / "tiny.gguf")
    assert count_bytes([tmp_path / "tiny.gguf"], torch.bfloat16) == 2 * model.num_parameters()


@pytest.mark.parametrize("size", [0, 4, 30, -1])
def test_a_file_that_is_cut_short_is_named_with_its_size(file: Path, size: int) -> None:
    """L8."""
    file.write_bytes(file.read_bytes()[:size])
    left = file.stat().st_size
    with pytest.raises(ModelLoadError, match=rf"model.safetensors is damaged or cut short: it has {left} bytes"):
        count_bytes([file], torch.float32)


def test_a_cut_files_whole_size_is_told_where_it_is_known(file: Path) -> None:
    """L8."""
    whole = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ModelLoadError, match=rf"it has {whole - 10} bytes of {whole}. Delete it and download it again"):
        count_bytes([file], torch.float32)


@pytest.mark.parametrize("size", [0, 1000, -10])
def test_a_pickle_that_is_cut_short_is_named_with_its_size(tmp_path: Path, size: int) -> None:
    """L8."""
    file = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, file)
    assert count_bytes([file], torch.float32) == file.stat().st_size
    file.write_bytes(file.read_bytes()[:size])
    left = file.stat().st_size
    with pytest.raises(ModelLoadError, match=rf"pytorch_model.bin is damaged or cut short: it has {left:,} bytes"):
        count_bytes([file], torch.float32)


@pytest.mark.parametrize("size", [0, 10, 1000, -64])
def test_a_gguf_file_that_is_cut_short_is_named_with_its_size(tmp_path: Path, size: int) -> None:
    """L8."""
    file = tmp_path / "tiny.gguf"
    save_gguf(*tiny_llama(), file)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(
        ModelLoadError, match=rf"tiny.gguf is damaged or cut short: it has {file.stat().st_size:,} bytes"
    ):
        read_gguf_header(file)


def test_a_part_of_a_gguf_file_is_answered_with_how_to_join_it(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"is one part of a model. Join the parts with `llama-gguf-split --merge`"):
        read_gguf_header(tmp_path / "big-00001-of-00003.gguf")


def test_a_git_lfs_pointer_is_told_from_a_real_file(file: Path) -> None:
    """L8."""
    pointer = file.with_name("tokenizer.json")
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "ascii")
    with pytest.raises(ModelLoadError, match=r"tokenizer.json is only a Git LFS pointer of 70 bytes.*`git lfs pull`"):
        find_source(str(file.parent), "", lambda _: None)


def test_all_shards_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    model, _ = tiny_llama()
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    shards = find_weights(tmp_path)
    assert len(shards) > 1
    assert count_bytes(shards, torch.float32) >= 4 * model.num_parameters()
    shards[1].unlink()
    with pytest.raises(ModelLoadError, match=rf"{shards[1].name} is missing: model.safetensors.index.json names it"):
        find_weights(tmp_path)


def test_a_folder_without_weights_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"holds no weights: neither model.safetensors nor pytorch_model.bin"):
        find_weights(tmp_path)


def test_a_folder_of_gguf_files_is_answered_with_how_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "b.gguf").touch()
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelLoadError, match=rf"holds GGUF files. Name the one to load: --model {tmp_path}:a.gguf"):
        find_weights(tmp_path)
