"""Weights in 8 or 4 bits, packed by bitsandbytes while a model loads."""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeAlias

import torch
from transformers import BitsAndBytesConfig, LogitsProcessorList, PreTrainedConfig, PreTrainedModel

from chat.engine.load_errors import require
from chat.engine.sampling import ScoreGuard
from chat.engine.source import Source
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


def try_out(model: PreTrainedModel, width: Width) -> None:
    """Let the model write two tokens, because not every layer can be computed with when it is packed.

    Raises: ModelLoadError; what torch raises if memory runs out.
    """
    row = torch.arange(8, device=model.device)[None]
    generative: Any = model  # the class does not tell that it can generate
    failure = None
    try:
        generative.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=2,
            do_sample=False,
            logits_processor=LogitsProcessorList([ScoreGuard()]),
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    if failure:
        other = "int8" if width == "int4" else "int4"
        raise ModelLoadError(
            f"This model cannot be computed in {width} on {model.device.type} ({failure}). "
            f"Leave --quantize out, or try --quantize {other}."
        )
