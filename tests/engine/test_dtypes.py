"""In which type the weights are loaded."""

from __future__ import annotations

import pytest
import torch

from chat.engine import dtypes
from chat.engine.dtypes import can_multiply, choose_dtype, time_cpu_turns

CPU = torch.device("cpu")
SECONDS = {torch.float32: 1.0, torch.bfloat16: 0.6, torch.float16: 9.0}


def times(**changed: float) -> dtypes.TimeTurns:
    """Return a clock by which the types take SECONDS, or what `changed` says."""
    seconds = {**SECONDS, **{getattr(torch, name): value for name, value in changed.items()}}
    return lambda *dtypes: {dtype: seconds[dtype] for dtype in dtypes}


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
    ("asked", "stored", "supported", "wanted", "noticed"),
    [
        ("auto", torch.float16, {torch.float16, torch.bfloat16}, torch.float16, False),
        ("auto", torch.bfloat16, {torch.float16, torch.bfloat16}, torch.bfloat16, False),
        ("auto", torch.float32, {torch.float16, torch.bfloat16}, torch.bfloat16, False),
        ("auto", torch.bfloat16, {torch.float16}, torch.float16, True),
        ("bfloat16", torch.float32, set(), torch.float32, True),
        ("float32", torch.bfloat16, {torch.float16, torch.bfloat16}, torch.float32, False),
    ],
)
def test_on_other_devices_the_stored_half_precision_is_used_if_it_is_supported(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: dtypes.AskedDtype,
    stored: torch.dtype,
    supported: set[torch.dtype],
    wanted: torch.dtype,
    noticed: bool,
) -> None:
    """L2."""
    monkeypatch.setattr(dtypes, "can_multiply", lambda _, dtype: dtype in {torch.float32, *supported})
    assert choose_dtype(asked, torch.device("mps"), stored) == wanted
    assert bool(caplog.records) == noticed


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
