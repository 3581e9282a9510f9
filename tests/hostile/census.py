"""The app, and what lives in it: `python -m tests.hostile.census` takes app.py's flags.

On SIGUSR1 it frees what nobody holds, and prints a line with what is left.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import signal
import sys
import threading
from types import AsyncGeneratorType, FrameType, GeneratorType

import psutil

import app

MARK = "census "


def count() -> dict[str, float]:
    """Count what a visitor may leave behind. Memory that only the allocator still holds is given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    living = gc.get_objects()
    process = psutil.Process()
    return {
        "threads": threading.active_count(),
        "asyncio tasks": sum(isinstance(thing, asyncio.Task) and not thing.done() for thing in living),
        "streams": sum(map(is_ours, living)),
        "sockets": sum(one.status != psutil.CONN_LISTEN for one in process.net_connections("tcp")),
        "open files": process.num_fds(),
        "MiB": process.memory_info().rss / 2**20,
    }


def is_ours(thing: object) -> bool:
    """Whether this is a stream of the chat's that has not ended, anywhere between the engine and the browser."""
    if isinstance(thing, GeneratorType):
        frame = thing.gi_frame
    else:
        frame = thing.ag_frame if isinstance(thing, AsyncGeneratorType) else None
    return frame is not None and "/chat/" in frame.f_code.co_filename


def report(signum: int, frame: FrameType | None) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(count())}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, report)
    app.main()
