"""How much memory there is."""

from __future__ import annotations

import psutil
import torch


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be had on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    # MPS shares the machine's memory.
    return int(psutil.virtual_memory().available)
