"""Reading a prompt into a KV cache: in pieces, and only what no earlier turn has read."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from chat.engine.prefix import PrefixCache
from chat.engine.request import Request
from chat.types import Progress

_SHORTEST_PIECE, _LONGEST_PIECE = 32, 512  # tokens read at once; the shortest take twice as long for a token
_PIECE_S = 1.0  # no piece should take longer, so that Stop is noticed while a long prompt is read


class PromptReader:
    """Reads prompts for one model, and keeps what it has read. For the one thread that owns the model."""

    def __init__(self, model: PreTrainedModel, budget: int) -> None:
        """`budget` is how many bytes of earlier turns to keep."""
        self._model = model
        self._kept = PrefixCache(budget)
        self._piece = _SHORTEST_PIECE
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
        self._supported = not model.config.is_encoder_decoder and (
            not any(self._new_cache().is_linear) or self._continues_from_states()
        )

    @torch.no_grad()
    def read(self, request: Request) -> DynamicCache | None:
        """Read all but the last prompt token, showing progress; return the cache for generate to go on from.

        Ends early when the request is cancelled. Returns None for models that generate must read for.
        """
        if not self._supported:
            return None
        ids = request.prompt.input_ids
        cache, done = self._kept.take(ids) or (self._new_cache(), 0)
        request.cached_tokens = done
        while done < len(ids) - 1 and not request.cancelled.is_set():
            request.progress = Progress("reading", done, len(ids))
            started = time.perf_counter()
            piece = ids[done : min(done + self._piece, len(ids) - 1)]
            self._forward(piece, cache)
            done += len(piece)
            self._adapt(len(piece), time.perf_counter() - started)
        request.progress = None
        if request.cancelled.is_set():
            self._kept.keep(ids[:done], cache)
        return cache

    def keep(self, request: Request, cache: DynamicCache) -> None:
        """Keep the cache of a finished or stopped reply, whose last token was chosen but not read."""
        self._kept.keep([*request.prompt.input_ids, *request.streamer.token_ids[:-1]], cache)

    def clear(self) -> bool:
        """Drop what is kept; tell whether there was anything."""
        return self._kept.clear()

    def _adapt(self, tokens: int, seconds: float) -> None:
        """Choose how much to read next by how long the last piece took, for this machine and model."""
        if tokens == self._piece and seconds < _PIECE_S / 2:
            self._piece = min(2 * tokens, _LONGEST_PIECE)
        elif seconds > _PIECE_S:
            self._piece = max(self._piece // 2, _SHORTEST_PIECE)

    def _new_cache(self) -> DynamicCache:
        return DynamicCache(config=self._model.config.get_text_config(decoder=True))

    def _forward(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """Read ids into the cache; return the scores of what follows, shape (vocabulary,)."""
        row = torch.tensor([ids], device=self._model.device)
        scores: torch.Tensor = self._model(row, cache=cache, use_cache=True, **self._options).logits[0, -1]
        return scores

    @torch.no_grad()
    def _continues_from_states(self) -> bool:
        """Try whether recurrent layers go on from their states: some start anew when more than one token comes."""
        ids = list(range(8))
        whole = self._forward(ids, self._new_cache())
        cache = self._new_cache()
        self._forward(ids[:4], cache)
        return torch.allclose(self._forward(ids[4:], cache), whole, rtol=0.05, atol=0.05 * float(whole.abs().max()))
