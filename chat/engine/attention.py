"""Attention over a batch of conversations without the work that its mask throws away."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_WORTH_SPLITTING = 50_000  # pairs of a query and a foreign key; measured: fewer cost less than calls of their own


def split_attention_by_request() -> None:
    """Let models that use `sdpa` attend to one request at a time where a batch of many is large.

    Without it, each token of a batch is compared with what every request has read, and a mask then drops
    the others': with eight conversations of 1,500 tokens that is most of a step on a CPU.
    """
    AttentionInterface.register("sdpa", attend)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as `sdpa` does, with the same result.

    query (1, heads, queries, size), key and value (1, groups, keys, size), mask (1, 1, queries, keys). In a
    batch, request i has queries `cu_seq_lens_q[i]` to `[i + 1]` and keys likewise.
    """
    if cu_seq_lens_q is None or cu_seq_lens_k is None or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    requests = list(zip(pairwise(cu_seq_lens_q.tolist()), pairwise(cu_seq_lens_k.tolist()), strict=True))
    own = sum((q_end - q) * (k_end - k) for (q, q_end), (k, k_end) in requests)
    if query.shape[2] * key.shape[2] - own < _WORTH_SPLITTING:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    outputs = [
        sdpa_attention_forward(
            module,
            query[:, :, q:q_end],
            key[:, :, k:k_end],
            value[:, :, k:k_end],
            attention_mask[:, :, q:q_end, k:k_end],
            **kwargs,
        )[0]
        for (q, q_end), (k, k_end) in requests
    ]
    return torch.cat(outputs, dim=1), None
