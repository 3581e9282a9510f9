"""The step that writes the next token, compiled: a model's many small calls become a few large ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from chat.engine.devices import list_devices
from chat.engine.trial import try_to_write
from chat.space import on_zerogpu
from chat.types import ModelLoadError


def compile_step(model: PreTrainedModel) -> None:
    """Compile the pass that reads one token behind a cache; every other, as of a prompt, stays as it is.

    Returns when it is compiled, which takes a minute or more. Raises: ModelLoadError.
    """
    reason = _known_obstacle(model)
    if reason is None:
        step = CompiledStep(model.forward)
        model.forward = step
        reason = try_to_write(model)
        # To compile again, as for a cache that was cropped, would hold up a reply for minutes.
        step.stance = "eager_on_recompile"
    if reason:
        raise ModelLoadError(f"This model cannot be compiled here: {reason}. Leave --compile out.")


def _known_obstacle(model: PreTrainedModel) -> str | None:
    if on_zerogpu():
        return "ZeroGPU gives each reply a process of its own"
    if model.config.is_encoder_decoder:
        return "it is an encoder-decoder"
    if len(list_devices(model)) > 1:
        return "it is spread over several devices"
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and not quantizer.is_compileable:
        return "it is quantized"
    return None


class CompiledStep:
    """Stands in for a model's `forward`."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)  # whose parameters generate asks for
        self._forward, self._compiled = forward, torch.compile(forward, dynamic=True)
        self.stance = "default"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _is_step(kwargs):
            return self._forward(*args, **kwargs)
        with torch.compiler.set_stance(self.stance):
            return self._compiled(*args, **kwargs)


def _is_step(kwargs: Mapping[str, Any]) -> bool:
    ids = kwargs.get("input_ids")
    return ids is not None and ids.shape == (1, 1) and isinstance(kwargs.get("cache"), DynamicCache)
