"""A first reply of a few tokens, to see whether a model can write at all."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessorList, PreTrainedModel

from chat.engine.sampling import ScoreGuard

_PROMPT_TOKENS, _REPLY_TOKENS = 11, 4
"""The compiler takes numbers for the same that happen to be the same; no layer of a model is 11 wide."""


def try_to_write(model: PreTrainedModel) -> str | None:
    """Let the model write; return what went wrong in short. Raises: what torch raises if memory runs out."""
    row = torch.arange(_PROMPT_TOKENS, device=model.device)[None]
    generative: Any = model  # the class does not tell that it can generate
    try:
        generative.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=_REPLY_TOKENS,
            min_new_tokens=_REPLY_TOKENS,
            do_sample=False,
            logits_processor=LogitsProcessorList([ScoreGuard()]),
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {first_line}"
    return None
