"""GenerationParams in the terms of `model.generate`."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    Cache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation.streamers import BaseStreamer

from chat.engine.failures import InvalidScores
from chat.types import GenerationParams

# Dividing scores by less than this overflows in half precision, and picks the likeliest token anyway.
_SMALLEST_TEMPERATURE = 0.01


def generate(
    model: PreTrainedModel,
    input_ids: Sequence[int],
    params: GenerationParams,
    max_new_tokens: int,
    streamer: BaseStreamer,
    should_stop: Callable[[], bool],
    cache: Cache | None = None,
) -> None:
    """Write one reply into `streamer`, until its end, or until `should_stop` says so before a token.

    `cache` holds what was read of the prompt already.
    """
    row = torch.tensor([input_ids], device=model.device)
    torch.manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
    generative: Any = model  # the class does not tell that it can generate
    generative.generate(
        row,
        attention_mask=torch.ones_like(row),
        generation_config=create_generation_config(generative.generation_config, params, max_new_tokens),
        streamer=streamer,
        stopping_criteria=StoppingCriteriaList([_Stop(should_stop)]),
        logits_processor=LogitsProcessorList([ScoreGuard()]),
        **({} if cache is None else {"cache": cache}),
    )


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


class _Stop(StoppingCriteria):
    """End generation as soon as nobody wants another token."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return one flag for each row of `input_ids`, shape (batch,)."""
        return torch.full((input_ids.shape[0],), self._should_stop(), device=input_ids.device)
