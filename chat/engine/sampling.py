"""GenerationParams in the terms of `model.generate`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor

from chat.engine.failures import InvalidScores
from chat.types import GenerationParams

# Dividing scores by less than this overflows in half precision, and picks the likeliest token anyway.
_SMALLEST_TEMPERATURE = 0.01


def create_generation_config(base: GenerationConfig, params: GenerationParams, max_new_tokens: int) -> GenerationConfig:
    """Return a copy of the model's own `base` with `params` put over it; greedy leaves every sampling field unset."""
    config = copy.deepcopy(base)
    sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if params.temperature is None or params.temperature >= _SMALLEST_TEMPERATURE:
        sampling = {
            "do_sample": True,
            "temperature": 1.0 if params.temperature is None else float(params.temperature),
            "top_p": params.top_p or 1.0,
            "top_k": params.top_k or 0,
        }
    config.update(
        max_new_tokens=max_new_tokens, num_beams=1, repetition_penalty=params.repetition_penalty or 1.0, **sampling
    )
    return config


class ScoreGuard(LogitsProcessor):
    """Raise InvalidScores when the scores hold NaN or infinity, which sampling would turn into a crash or nonsense."""

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Check scores of shape (batch, vocabulary); the maximum shows every NaN and +inf, and a row of only -inf."""
        if not torch.isfinite(scores.max()):
            raise InvalidScores
        return scores
