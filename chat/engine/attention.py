"""Attention over a batch of conversations without the work that its mask throws away."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_WORTH_SPLITTING = 20_000  # pairs of a query and a foreign key; measured: fewer cost less than calls of their own


def split_attention_by_request() -> None:
    """Let models that use `sdpa` attend to one request at a time where a batch of many is large.

    Without it, each token of a batch is compared with what every request has read, and a mask then drops
    the others': with eight conversations of 1,500 tokens that is most of a step on a CPU. Keys and values
    that several heads share would also be copied for each of them.
    """
    AttentionInterface.register("sdpa", attend)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as `sdpa` does, with the same result.

    query (1, heads, queries, size), key and value (1, groups, keys, size), mask (1, 1, queries, keys). In a
    batch, request i has queries `cu_seq_lens_q[i]` to `[i + 1]` and keys likewise. Returns (1, queries, heads, size).
    """
    is_special = any(kwargs.get(name) is not None for name in ("softcap", "position_bias"))
    if cu_seq_lens_q is None or cu_seq_lens_k is None or attention_mask is None or is_special:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    outputs = [
        scaled_dot_product_attention(
            query[:, :, q:q_end],
            key[:, :, k:k_end],
            value[:, :, k:k_end],
            attn_mask=attention_mask[:, :, q:q_end, k:k_end],
            scale=scaling,
            enable_gqa=True,
        )
        for (q, q_end), (k, k_end) in _split(cu_seq_lens_q.tolist(), cu_seq_lens_k.tolist())
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _split(queries: list[int], keys: list[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the ranges of queries and keys to attend to at once: each request's own, or all together."""
    requests = list(zip(pairwise(queries), pairwise(keys), strict=True))
    own = sum((q_end - q) * (k_end - k) for (q, q_end), (k, k_end) in requests)
    if queries[-1] * keys[-1] - own < _WORTH_SPLITTING:
        return [((0, queries[-1]), (0, keys[-1]))]
    return requests
