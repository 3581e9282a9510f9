"""In which type the weights are loaded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import torch
from torch.nn.functional import linear

logger = logging.getLogger(__name__)

K = TypeVar("K")
AskedDtype: TypeAlias = Literal["auto", "bfloat16", "float16", "float32"]
TimeTurns: TypeAlias = Callable[..., dict[torch.dtype, float]]

SANE = 1.5
"""Times the seconds of float32 that float16 may take on a CPU before it counts as not really supported."""

PROMPT_TOKENS, REPLY_TOKENS, PIECE_TOKENS = 256, 128, 32  # a usual turn of a chat
TIMING_S, TIMING_ROUNDS = 0.2, 30


def choose_dtype(
    asked: AskedDtype,
    device: torch.device,
    stored: object,
    time_turns: TimeTurns | None = None,
) -> torch.dtype:
    """Return the type to load the weights in; a type that `device` cannot multiply well is replaced, with a notice.

    `auto` is what this CPU multiplies faster, bfloat16 or float32; on other devices it is the half precision
    in which the weights are `stored`, or bfloat16. `time_turns` tells what a usual turn takes on the CPU.
    """
    if device.type == "cpu":
        return _choose_cpu_dtype(asked, time_turns or time_cpu_turns)
    wanted = getattr(torch, asked) if asked != "auto" else _half(stored)
    dtype = next(t for t in (wanted, torch.float16, torch.float32) if can_multiply(device, t))
    if dtype != wanted:
        _notice(wanted, dtype, device)
    return dtype


def _half(stored: object) -> torch.dtype:
    return torch.float16 if stored == torch.float16 else torch.bfloat16


def _choose_cpu_dtype(asked: AskedDtype, time_turns: TimeTurns) -> torch.dtype:
    if asked == "auto":
        seconds = time_turns(torch.float32, torch.bfloat16)
        return min(seconds, key=seconds.__getitem__)
    if asked == "float16" and not _multiplies_float16(time_turns):
        _notice(torch.float16, torch.float32, torch.device("cpu"))
        return torch.float32
    dtype: torch.dtype = getattr(torch, asked)
    return dtype


def _multiplies_float16(time_turns: TimeTurns) -> bool:
    try:
        seconds = time_turns(torch.float16, torch.float32)
    except RuntimeError:  # what torch raises for a product it does not have
        return False
    return seconds[torch.float16] <= SANE * seconds[torch.float32]


def _notice(wanted: torch.dtype, dtype: torch.dtype, device: torch.device) -> None:
    logger.warning("%s is not well supported on %s here; using %s.", name_dtype(wanted), device.type, name_dtype(dtype))


def name_dtype(dtype: torch.dtype) -> str:
    """Return the dtype's name as the settings write it."""
    return str(dtype).removeprefix("torch.")


def can_multiply(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether `device` multiplies matrices of `dtype`, and not only by emulating it."""
    if device.type == "cuda" and dtype == torch.bfloat16:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        ones = torch.ones(2, 2, dtype=dtype, device=device)
        return bool((ones @ ones == 2).all())
    except (RuntimeError, TypeError):
        return False


def time_cpu_turns(*dtypes: torch.dtype) -> dict[torch.dtype, float]:
    """Return the seconds that one core needs for one layer's share of a usual turn, for each of `dtypes`.

    A prompt is a matrix times a matrix, a token of a reply is a matrix times a vector, and a CPU may be good
    at the one and slow at the other.
    """
    products = {
        (dtype, tokens): partial(linear, torch.ones(tokens, 1024, dtype=dtype), torch.ones(2048, 1024, dtype=dtype))
        for dtype in dtypes
        for tokens in (PIECE_TOKENS, 1)
    }
    with _one_thread():
        best = _best_seconds(products)
    return {
        dtype: best[dtype, PIECE_TOKENS] * PROMPT_TOKENS / PIECE_TOKENS + best[dtype, 1] * REPLY_TOKENS
        for dtype in dtypes
    }


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """Let torch use one thread: several wait for each other, and on a busy machine that wait is all one measures."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _best_seconds(calls: Mapping[K, Callable[[], object]]) -> dict[K, float]:
    """Return each call's best time. The calls take turns, so that another busy program slows them all alike."""
    best = dict.fromkeys(calls, float("inf"))
    deadline = time.perf_counter() + TIMING_S
    for _ in range(TIMING_ROUNDS):
        for key, call in calls.items():
            started = time.perf_counter()
            call()
            best[key] = min(best[key], time.perf_counter() - started)
        if time.perf_counter() > deadline:
            break
    return best
