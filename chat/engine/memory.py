"""How much memory there is."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import torch


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be had on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    # MPS shares the machine's memory.
    free = int(psutil.virtual_memory().available)
    limit = _container_memory(Path("/sys/fs/cgroup"))
    return free if limit is None else min(free, limit)


def _container_memory(folder: Path) -> int | None:
    """Return the bytes that a container may still take; None if it has no limit of its own.

    Source of the format: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # not there, or "max"
        return None
    # Files that were read are counted as used until somebody needs the room.
    return max(0, limit - used + int(counts.get("inactive_file", 0)))


def release_memory() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    # torch.accelerator.empty_cache would do for all devices, but torch 2.8 has none.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()
