"""Reuse of the KV cache between turns: what was read once is not read again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache
from transformers.cache_utils import (
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)


@dataclass(frozen=True)
class _Kept:
    ids: Sequence[int]
    cache: DynamicCache
    size: int


class PrefixCache:
    """Keeps the caches of past replies under a budget in bytes; the least recently used goes first.

    Matched by token ids, never by text. Not for several threads: the worker that owns the model owns it.
    """

    def __init__(self, budget: int) -> None:
        """`budget` is in bytes; 0 keeps nothing."""
        self._budget = budget
        self._kept: list[_Kept] = []

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(kept.size for kept in self._kept)

    def take(self, ids: Sequence[int]) -> tuple[DynamicCache, int] | None:
        """Return a cache that holds the first n of `ids`, and n, for the largest n that a kept one gives.

        n is less than len(ids), since a model must read at least one token to go on. The cache is the
        caller's to change. One that a conversation goes on from is handed out itself, one that shares
        only its beginning is copied, so that the other conversation keeps its own.
        """
        best, n = None, 0
        for kept in self._kept:
            usable = _usable_length(kept, ids)
            if usable > n:
                best, n = kept, usable
        if best is None:
            return None
        if 2 * n > len(best.ids):
            self._kept.remove(best)
            cache = best.cache
        else:
            cache = copy.deepcopy(best.cache)
        if n < len(best.ids):
            cache.crop(n - len(best.ids))
        return cache, n

    def keep(self, ids: Sequence[int], cache: DynamicCache) -> None:
        """Keep a cache that holds exactly `ids`, in place of those that hold only a beginning of them."""
        kept = _Kept(ids, cache, _size(cache))
        self._kept = [other for other in self._kept if _common_length(other.ids, ids) < len(other.ids)]
        self._kept.append(kept)
        while self.size > self._budget:
            self._kept.pop(0)

    def clear(self) -> bool:
        """Drop everything; tell whether there was anything."""
        had_any = bool(self._kept)
        self._kept.clear()
        return had_any


def _usable_length(kept: _Kept, ids: Sequence[int]) -> int:
    """Return how many of `ids` the kept cache can give: their common beginning, if it can be cropped to that."""
    n = min(_common_length(kept.ids, ids), len(ids) - 1)
    return n if n == len(kept.ids) or _can_crop(kept.cache) else 0


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _can_crop(cache: DynamicCache) -> bool:
    """Tell whether tokens can be taken off the end: not from recurrent states, nor behind a window that has moved."""
    return all(
        isinstance(layer, DynamicLayer | DummyLayer)
        and not isinstance(layer, LinearAttentionCacheLayerMixin)
        and not (isinstance(layer, DynamicSlidingWindowLayer) and layer.get_seq_length() >= layer.sliding_window)
        for layer in cache.layers
    )


def _size(cache: DynamicCache) -> int:
    """Count the bytes of every tensor in the cache."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    states = [state for value in values if isinstance(value, dict) for state in value.values()]
    return sum(tensor.nbytes for tensor in (*values, *states) if isinstance(tensor, torch.Tensor))
