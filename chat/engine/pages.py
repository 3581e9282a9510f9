"""The pool of pages that holds what every request of a batch has read: how many there are, and how large."""

from __future__ import annotations

import math
from dataclasses import dataclass

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.generation.continuous_batching.utils import find_head_dim, find_num_key_value_heads
from transformers.utils.generic import is_flash_attention_requested

from chat.engine.memory import free_memory
from chat.types import OutOfMemory

MOST_REQUESTS = 32
"""How many requests are answered at once at most; more are slower for everybody than waiting."""

_PAGE_TOKENS = 32  # measured: smaller ones cost bookkeeping, larger ones share less of what was read before
_FLASH_PAGE_TOKENS = 256  # the kernel takes multiples of this only
_STEP_TOKENS = 256  # read in one step beside the replies; measured: larger steps are no faster, and let replies wait
_MOST_OF_A_MACHINE = 2 * 2**30
_SPARE = 0.15  # below this share of free pages the manager starts no more prompts


@dataclass(frozen=True)
class PagePool:
    """A pool of `pages` pages of `page_tokens` tokens each; a step reads at most `step_tokens`."""

    page_tokens: int
    pages: int
    step_tokens: int

    @property
    def usable_pages(self) -> int:
        """Pages that requests may reserve."""
        return int(self.pages * (1 - _SPARE))

    @property
    def longest(self) -> int:
        """The most tokens that prompt and reply of one request can have together."""
        return self.usable_pages * self.page_tokens

    def pages_for(self, tokens: int) -> int:
        """Return how many pages that many tokens fill."""
        return math.ceil(tokens / self.page_tokens)


def plan_pages(model: PreTrainedModel, window: int, budget: int | None) -> PagePool:
    """Return a pool within `budget` bytes, or a share of what is free, but large enough for one window if that fits.

    Raises: OutOfMemory.
    """
    config, device = model.config.get_text_config(decoder=True), model.device
    page_tokens = _FLASH_PAGE_TOKENS if is_flash_attention_requested(config) else _PAGE_TOKENS
    free = free_memory(device)
    if budget is None:
        # An accelerator's memory has no other use. The machine's is everybody's, and the pool takes it at once.
        budget = free // 2 if device.type == "cuda" else min(free // 4, _MOST_OF_A_MACHINE)
    page_bytes = page_tokens * _token_bytes(config, model.dtype.itemsize)
    window_pages = math.ceil(window / page_tokens / (1 - _SPARE))
    wanted = min(max(budget // page_bytes, window_pages), window_pages * MOST_REQUESTS)
    pages = min(wanted, int(free * 0.8) // page_bytes)
    if pages < 4:
        raise OutOfMemory(
            "There is too little memory left to answer anybody. Choose a smaller model, or --engine direct."
        )
    return PagePool(page_tokens, pages, _STEP_TOKENS)


def _token_bytes(config: PreTrainedConfig, itemsize: int) -> int:
    """Count what one token takes: keys and values in every layer, and its share of a step's working memory.

    A step gathers one layer's keys and values, repeats them for every attention head, and holds for each
    of its tokens a row of the attention mask.
    """
    heads, groups, size = config.num_attention_heads, find_num_key_value_heads(config), find_head_dim(config)
    kept = 2 * groups * size * config.num_hidden_layers
    gathered = 2 * (groups + heads) * size
    return int((kept + gathered + _STEP_TOKENS) * itemsize)
