"""How much memory there is."""

from __future__ import annotations

import gc

import psutil
import torch


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be had on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    # MPS shares the machine's memory.
    return int(psutil.virtual_memory().available)


def release_memory() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
