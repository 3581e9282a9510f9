"""Whether a model can be batched: what is known to be in the way, and then a trial."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import LogitsProcessorList, PreTrainedModel
from transformers.generation.continuous_batching.cache import group_layers_by_attn_type
from transformers.generation.continuous_batching.utils import logger as manager_logger
from transformers.utils.generic import is_flash_attention_requested

from chat.engine.batch import Batch
from chat.engine.choosing import Choice
from chat.engine.devices import list_devices
from chat.engine.pages import PagePool
from chat.types import ModelLoadError

_PROMPT_TOKENS, _REPLY_TOKENS = 40, 4  # more than a page


class CannotBatch(ModelLoadError):
    """Continuous batching does not work with this model."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"This model cannot be batched, because {reason}. Start with --engine direct.")


def try_batching(model: PreTrainedModel, pool: PagePool) -> None:
    """Let a batch write a few tokens, and look whether the model alone would have, too. Raises: CannotBatch."""
    prompt = [(7 * i + 3) % model.config.get_text_config().vocab_size for i in range(_PROMPT_TOKENS)]
    with _errors_unlogged():
        reply = _write(model, pool, prompt)
    if not _are_likeliest(model, prompt, reply):
        raise CannotBatch("it writes other tokens then")


@contextmanager
def _errors_unlogged() -> Iterator[None]:
    """Keep from the log what CannotBatch says anyway."""
    level = manager_logger.level
    manager_logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        manager_logger.setLevel(level)


def find_obstacle(model: PreTrainedModel) -> str | None:
    """Return what is known to keep a model from being batched; it goes on from "because"."""
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        return "it is an encoder-decoder"
    if not getattr(config, "num_attention_heads", None):
        return "it has no attention"
    if len(list_devices(model)) > 1:
        return "it is spread over several devices"
    if model.device.type == "mps":
        return "that is slow on Apple's devices"
    # Any other would be switched for everybody who uses the model.
    if config._attn_implementation != "sdpa" and not is_flash_attention_requested(config):
        return f"its attention is {config._attn_implementation}"
    try:
        group_layers_by_attn_type(config)
    except ValueError as error:
        return f"of its layers ({error})"
    return None


def _write(model: PreTrainedModel, pool: PagePool, prompt: list[int]) -> list[int]:
    """Return the tokens that a batch continues the prompt with."""
    batch = Batch(model, pool, end_ids=())
    try:
        batch.add("trial", prompt, Choice(LogitsProcessorList(), greedy=True), _REPLY_TOKENS)
        while not batch.dead:
            output = batch.output(0.1)
            if output and output.is_finished() and not output.error:
                return list(output.generated_tokens)
        error = batch.failure()
    finally:
        batch.stop()
    raise CannotBatch(f"it fails then ({type(error).__name__}: {error})")


@torch.no_grad()
def _are_likeliest(model: PreTrainedModel, prompt: list[int], reply: list[int]) -> bool:
    """Tell whether each token of the reply has the best score, or nearly, since rounding differs in a batch."""
    row = torch.tensor([prompt + reply[:-1]], device=model.device)
    scores = model(row).logits[0, len(prompt) - 1 :].float()
    best, given = scores.amax(-1), scores.gather(1, torch.tensor(reply, device=model.device)[:, None])[:, 0]
    return bool((best - given <= 0.1 * (best - scores.mean(-1))).all())
