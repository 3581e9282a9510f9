"""Weights in 8 or 4 bits, packed by bitsandbytes while a model loads."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

from chat.engine.load_errors import require
from chat.engine.source import Source
from chat.engine.trial import try_to_write
from chat.space import on_zerogpu
from chat.types import ModelLoadError

Width: TypeAlias = Literal["int8", "int4"]

_BITS: dict[Width, int] = {"int8": 8, "int4": 4}


def plan_quantization(width: Width, source: Source, config: PreTrainedConfig, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Return how to pack the layers, which compute in `dtype`; embeddings and the output layer stay whole.

    Raises: ModelLoadError where that cannot be, or if a package is missing.
    """
    if source.gguf or hasattr(config, "quantization_config"):
        raise ModelLoadError(f"{source.name} is quantized already. Leave --quantize out.")
    if on_zerogpu():
        raise ModelLoadError("ZeroGPU has no GPU yet when the weights load, to pack them on. Leave --quantize out.")
    require("bitsandbytes", "to quantize a model")
    require("accelerate", "to quantize a model")
    # It warns of every single product that it rounds, and of packages that it can do without.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if width == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def packed_bytes(whole: int, width: Width, dtype: torch.dtype) -> int:
    """Return how many bytes weights take at least once they are packed, which took `whole` bytes as `dtype`."""
    return whole * _BITS[width] // (8 * dtype.itemsize)


def check_packed(model: PreTrainedModel, width: Width) -> None:
    """Let the model write, because not every layer can be computed with once it is packed. Raises: ModelLoadError."""
    reason = try_to_write(model)
    if reason:
        other = "int8" if width == "int4" else "int4"
        raise ModelLoadError(
            f"This model cannot be computed in {width} on {model.device.type} ({reason}). "
            f"Leave --quantize out, or try --quantize {other}."
        )
