"""Which device the model runs on, and whether it fits there."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import psutil
import torch
from transformers import PreTrainedModel

from chat.engine.load_errors import require
from chat.types import ModelLoadError

DeviceMap: TypeAlias = "str | dict[str, torch.device] | None"

ROOM = 1.2
"""Times the weights' bytes that a device should have free: the cache and the activations want room too."""

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def choose_device(asked: str) -> torch.device:
    """Return the device to use; `auto` is the first of cuda, mps and cpu that is there. Raises: ModelLoadError."""
    if asked == "auto":
        return torch.device(next((name for name in ("cuda", "mps") if _is_available(name)), "cpu"))
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise ModelLoadError(f"{asked!r} is not a device. Use --device auto, cpu, cuda, cuda:1 or mps.") from None
    if not _is_available(device.type):
        raise ModelLoadError(
            f"There is no {device.type} device here that this torch can use. Use --device auto, or install "
            "the torch build for it."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelLoadError(f"There is no {asked}: this machine has {torch.cuda.device_count()} of them, from cuda:0.")
    return device


def list_devices(model: PreTrainedModel) -> list[str]:
    """Return the names of the devices that hold a part of the model."""
    places = getattr(model, "hf_device_map", None) or {"": model.device}
    return list(dict.fromkeys(str(torch.device(place)) for place in places.values()))


def _is_available(kind: str) -> bool:
    if kind == "mps":
        return torch.backends.mps.is_available()
    if kind == "cuda":
        return torch.cuda.is_available()
    return kind == "cpu" or (hasattr(torch, kind) and bool(getattr(torch, kind).is_available()))


def place(asked: str, device: torch.device, needed: int) -> DeviceMap:
    """Return the device map for weights of `needed` bytes: None is the CPU, "auto" spreads them over all devices.

    Only `auto` spreads; a device that was asked for by name is used alone. Raises: ModelLoadError if the weights
    cannot fit, or if a package is missing.
    """
    if device.type == "cpu":
        _check_room(needed, memory_size())
        return None
    require("accelerate", "to load a model onto a graphics device")
    if device.type == "cuda" and asked == "auto" and needed * ROOM > torch.cuda.mem_get_info(device)[0]:
        _check_room(needed, memory_size() + _cuda_free())
        return "auto"
    return {"": device}


def _cuda_free() -> int:
    return sum(int(torch.cuda.mem_get_info(index)[0]) for index in range(torch.cuda.device_count()))


def _check_room(needed: int, there: int) -> None:
    if needed > there:
        raise ModelLoadError(
            f"The model needs {needed / 1e9:.1f} GB of memory, and this machine has {there / 1e9:.1f} GB for it. "
            "Choose a smaller model, or a quantized one."
        )


def memory_size() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's if that is less."""
    size = int(psutil.virtual_memory().total)
    try:
        return min(size, int(CONTAINER_LIMIT.read_text("ascii")))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return size
