"""The next tokens of many requests at once, each chosen by its own params."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LogitsProcessorList, PreTrainedModel
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessorList
from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState

from chat.engine.failures import InvalidScores, explain_failure
from chat.engine.sampling import create_generation_config
from chat.types import GenerationParams

_LIKELIEST = 1024  # tokens looked at first; sorting the whole vocabulary takes ten times as long


@dataclass
class Choice:
    """How one request's tokens are chosen: scores through `processors`, then greedily or by chance."""

    processors: LogitsProcessorList
    greedy: bool
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    random: random.Random = field(default_factory=random.Random)


def create_choice(model: PreTrainedModel, params: GenerationParams, prompt_tokens: int) -> Choice:
    """Return what `model.generate` would do for `params`, with random numbers of the request's own."""
    generative: Any = model
    greedy = create_generation_config(generative.generation_config, params.model_copy(update={"temperature": 0.0}), 1)
    generative._prepare_special_tokens(greedy, kwargs_has_attention_mask=True, device=model.device)
    processors = generative._get_logits_processor(greedy, input_ids_seq_length=prompt_tokens, device=model.device)
    config = create_generation_config(generative.generation_config, params, 1)
    if not config.do_sample:
        return Choice(processors, greedy=True)
    draws = random.Random(params.seed)
    return Choice(processors, False, config.temperature, config.top_k, config.top_p, draws)


class TokenChooser(ContinuousBatchingLogitsProcessorList):
    """Stands in the batching manager where its score processors would.

    The manager itself is set to be greedy. So temperature 0 and others run in one batch, and each request
    draws its own random numbers, whoever is beside it.
    """

    def __init__(self, watch: Callable[[Sequence[FutureRequestState]], None]) -> None:
        """`watch` is called before each forward pass with the requests that take part in it."""
        super().__init__(LogitsProcessorList())
        self.do_processing = True
        self._watch = watch
        self._rows: list[RequestState] = []

    def check_kwargs(self, kwargs: dict[str, Any]) -> None:
        """Take what a request brings as it is: its `choice`."""

    def prepare_tensor_args(
        self, requests_in_batch: list[FutureRequestState], arg_storage: torch.Tensor
    ) -> torch.Tensor:
        """Note whose scores will come, in order."""
        self._watch(requests_in_batch)
        self._rows = [request.state for request in requests_in_batch if request.has_new_token]
        return arg_storage

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.Tensor, logits_processor_args: torch.Tensor
    ) -> torch.Tensor:
        """Take scores of shape (rows, vocabulary); where a token is drawn, leave only its score finite."""
        rows = self._rows
        if not rows:
            return scores
        used = scores[: len(rows)]
        for row, state in enumerate(rows):
            _process(state, used[row : row + 1])
        finite = torch.isfinite(used.amax(dim=-1)).tolist()
        drawn: dict[int, Choice] = {}
        for row, state in enumerate(rows):
            choice = state.logit_processor_kwargs["choice"]
            if not finite[row]:
                state.error = state.error or str(InvalidScores())
            elif not choice.greedy:
                drawn[row] = choice
        if drawn:
            places = list(drawn)
            tokens = draw_tokens(used[places], list(drawn.values()))
            used[places] = -torch.inf
            used[places, tokens] = 0.0
        return scores


def _process(state: RequestState, scores: torch.Tensor) -> None:
    """Change one request's scores, shape (1, vocabulary), by its processors; an error is this request's own."""
    processors = state.logit_processor_kwargs["choice"].processors
    if not processors:
        return
    ids = torch.tensor([state.initial_tokens + state.generated_tokens], device=scores.device)
    try:
        scores.copy_(processors(ids, scores))
    except Exception as error:
        state.error = str(explain_failure(error))


def draw_tokens(scores: torch.Tensor, choices: Sequence[Choice]) -> torch.Tensor:
    """Return a token id for each row of `scores`, shape (rows, vocabulary).

    It is drawn from the row's likeliest tokens: `top_k` of them, and of these the fewest that hold `top_p`.
    """

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, device=scores.device)[:, None]

    vocabulary = scores.shape[-1]
    top_p = column([choice.top_p for choice in choices])
    top_k = column([choice.top_k or vocabulary for choice in choices])
    limited = top_k < vocabulary
    scores = scores / column([choice.temperature for choice in choices])
    total = scores.logsumexp(dim=-1, keepdim=True)
    for looked_at in (min(_LIKELIEST, vocabulary), vocabulary):
        best, ids = scores.topk(looked_at)
        shares = (best - total).exp()
        if torch.where(limited, top_k <= looked_at, shares.sum(-1, keepdim=True) > top_p).all():
            break
    shares = shares.where(torch.arange(looked_at, device=scores.device) < top_k, 0.0)
    whole = torch.where(limited, shares.sum(-1, keepdim=True), 1.0)
    before = shares.cumsum(-1) - shares
    shares = shares.where(before < top_p * whole, 0.0)
    mark = column([choice.random.random() for choice in choices]) * shares.sum(-1, keepdim=True)
    place = (shares.cumsum(-1) <= mark).sum(-1, keepdim=True)
    return ids.gather(1, place.clamp(max=looked_at - 1))[:, 0]
