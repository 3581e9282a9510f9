"""Which device, which type, and whether it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chat.engine import devices, load_errors
from chat.engine.devices import can_multiply, choose_device, choose_dtype, memory_size, place, time_cpu_turns
from chat.types import ModelLoadError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
SECONDS = {torch.float32: 1.0, torch.bfloat16: 0.6, torch.float16: 9.0}


def times(**changed: float) -> devices.TimeTurns:
    """Return a clock by which the types take SECONDS, or what `changed` says."""
    seconds = {**SECONDS, **{getattr(torch, name): value for name, value in changed.items()}}
    return lambda *dtypes: {dtype: seconds[dtype] for dtype in dtypes}


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


def test_on_this_cpu_auto_is_never_float16() -> None:
    """L1."""
    assert choose_dtype("auto", CPU, torch.float16) in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("bfloat16", "wanted"), [(0.6, torch.bfloat16), (1.4, torch.float32)])
def test_on_a_cpu_auto_is_what_multiplies_faster(bfloat16: float, wanted: torch.dtype) -> None:
    assert choose_dtype("auto", CPU, torch.float16, times(bfloat16=bfloat16)) == wanted


@pytest.mark.parametrize(("float16", "wanted"), [(9.0, torch.float32), (1.1, torch.float16)])
def test_on_a_cpu_float16_is_only_used_where_it_is_really_supported(
    float16: float, wanted: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    """L1."""
    assert choose_dtype("float16", CPU, torch.float16, times(float16=float16)) == wanted
    notices = ["float16 is not well supported on cpu here; using float32."] if wanted == torch.float32 else []
    assert [record.getMessage() for record in caplog.records] == notices


def test_on_a_cpu_without_float16_products_float32_is_used() -> None:
    """L1: what an older torch says."""

    def fail(*_: torch.dtype) -> dict[torch.dtype, float]:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")

    assert choose_dtype("float16", CPU, torch.float16, fail) == torch.float32


def test_on_a_cpu_what_is_asked_for_is_not_timed() -> None:
    assert choose_dtype("bfloat16", CPU, None, times(bfloat16=99.0)) == torch.bfloat16


@pytest.mark.parametrize(
    ("asked", "stored", "supported", "wanted"),
    [
        ("auto", torch.float16, {torch.float16, torch.bfloat16}, torch.float16),
        ("auto", torch.bfloat16, {torch.float16, torch.bfloat16}, torch.bfloat16),
        ("auto", torch.float32, {torch.float16, torch.bfloat16}, torch.bfloat16),
        ("auto", torch.bfloat16, {torch.float16}, torch.float16),
        ("bfloat16", torch.float32, set(), torch.float32),
        ("float32", torch.bfloat16, {torch.float16, torch.bfloat16}, torch.float32),
    ],
)
def test_on_other_devices_the_stored_half_precision_is_used_if_it_is_supported(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: devices.AskedDtype,
    stored: torch.dtype,
    supported: set[torch.dtype],
    wanted: torch.dtype,
) -> None:
    """L2."""
    monkeypatch.setattr(devices, "can_multiply", lambda _, dtype: dtype in {torch.float32, *supported})
    assert choose_dtype(asked, torch.device("mps"), stored) == wanted
    replaced = (asked != "auto" and asked != devices.name_dtype(wanted)) or not supported >= {stored} - {torch.float32}
    assert bool(caplog.records) == replaced


def test_a_product_that_a_device_does_not_have_is_found_by_trying() -> None:
    """L2."""
    assert can_multiply(CPU, torch.float32)
    assert not can_multiply(torch.device("meta"), torch.float32)


def test_timing_measures_every_type_and_leaves_the_threads_as_they_were() -> None:
    threads = torch.get_num_threads()
    seconds = time_cpu_turns(torch.float32, torch.bfloat16)
    assert set(seconds) == {torch.float32, torch.bfloat16}
    assert all(0 < value < float("inf") for value in seconds.values())
    assert torch.get_num_threads() == threads


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
