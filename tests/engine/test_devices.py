"""Which device, and whether the model fits there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chat.engine import devices, load_errors
from chat.engine.devices import choose_device, memory_size, place
from chat.types import ModelLoadError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_the_first_device_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, wanted in ((["cuda", "mps"], "cuda"), (["mps"], "mps"), ([], "cpu")):
        monkeypatch.setattr(devices, "_is_available", lambda name, there=there: name in there)
        assert choose_device("auto").type == wanted


@pytest.mark.parametrize("asked", ["gpu", "cuda:x", ""])
def test_a_device_that_does_not_exist_is_answered_with_those_that_do(asked: str) -> None:
    with pytest.raises(ModelLoadError, match=f"'{asked}' is not a device. Use --device auto, cpu, cuda"):
        choose_device(asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a cuda device")
def test_a_device_that_is_not_in_this_machine_is_told_so() -> None:
    with pytest.raises(ModelLoadError, match="There is no cuda device here that this torch can use"):
        choose_device("cuda")


def test_a_device_number_too_high_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ModelLoadError, match="There is no cuda:2: this machine has 2 of them, from cuda:0"):
        choose_device("cuda:2")


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graphics device with 10 GB free, in a machine with 20 GB."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10**10, 16 * 10**9))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "memory_size", lambda: 20 * 10**9)


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(
    ("asked", "needed", "wanted"),
    [
        ("auto", 8 * 10**9, {"": CUDA}),
        ("auto", 9 * 10**9, "auto"),
        ("cuda:0", 9 * 10**9, {"": CUDA}),
    ],
)
def test_a_model_is_spread_only_if_one_device_is_not_enough_and_none_was_named(
    asked: str, needed: int, wanted: object
) -> None:
    assert place(asked, CUDA, needed) == wanted


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(("device", "there"), [(CUDA, "30.0"), (CPU, "20.0")])
def test_a_model_that_cannot_fit_is_refused_with_both_numbers(device: torch.device, there: str) -> None:
    with pytest.raises(ModelLoadError, match=f"The model needs 31.5 GB of memory, and this machine has {there} GB"):
        place("auto", device, 31_500_000_000)


def test_a_cpu_needs_no_device_map() -> None:
    assert place("auto", CPU, 1) is None


def test_a_missing_accelerate_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """L3."""
    monkeypatch.setattr(load_errors, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"The package accelerate is needed .* Run: pip install accelerate"):
        place("auto", CUDA, 1)


@pytest.mark.parametrize(("limit", "counts"), [("1000000", True), ("max", False), (None, False)])
def test_a_containers_memory_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, counts: bool
) -> None:
    file = tmp_path / "memory.max"
    if limit:
        file.write_text(limit + "\n", "ascii")
    monkeypatch.setattr(devices, "CONTAINER_LIMIT", file)
    assert (memory_size() == 1_000_000) == counts
