"""One reply, or several at once, as their readers see them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from chat.engine.loading import LoadedModel
from chat.engine.preparing import Preparer
from chat.types import Engine, GenerationParams, Message, Usage

Messages: TypeAlias = Sequence[Message]


@dataclass
class Talk:
    """When each piece of a reply came, and what the reply was."""

    usage: Usage = field(default_factory=Usage)
    started: float = field(default_factory=time.perf_counter)
    arrivals: list[float] = field(default_factory=list)
    text: str = ""

    @property
    def first_s(self) -> float:
        """Seconds to the first piece."""
        return self.arrivals[0] - self.started

    @property
    def worst_gap_s(self) -> float:
        """The longest wait for a next piece."""
        return max((b - a for a, b in pairwise(self.arrivals)), default=0.0)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first."""
        seconds = self.arrivals[-1] - self.arrivals[0]
        return (self.usage.completion_tokens - 1) / seconds if seconds > 0 else 0.0


Ask: TypeAlias = Callable[[Messages, int], Talk]


class Interrupted(Exception):
    """The person has seen enough."""


class Asker:
    """Asks engines and bare models, greedily, until `stopped` is set."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def engine(self, engine: Engine) -> Ask:
        """Return what asks an engine. Raises then: ChatError, Interrupted."""

        def ask(messages: Messages, tokens: int) -> Talk:
            talk = Talk()
            with closing(engine.stream(messages, GenerationParams(max_new_tokens=tokens, temperature=0))) as stream:
                for chunk in stream:
                    if self.stopped.is_set():
                        raise Interrupted
                    if chunk.text or chunk.thought:
                        talk.arrivals.append(time.perf_counter())
                        talk.text += chunk.text
                    talk.usage = chunk.usage or talk.usage
            return talk

        return ask

    def bare(self, loaded: LoadedModel) -> Ask:
        """Return what calls `model.generate` and nothing else. Raises then: Interrupted."""

        model: Any = loaded.model
        preparer = Preparer(loaded)

        def ask(messages: Messages, tokens: int) -> Talk:
            talk = Talk()
            prompt = preparer.prepare(messages, GenerationParams(max_new_tokens=tokens)).prompt.input_ids
            row = torch.tensor([prompt], device=model.device)
            out = model.generate(
                row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=tokens,
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([_Clock(talk, self.stopped)]),
            )
            if self.stopped.is_set():
                raise Interrupted
            reply = out[0, len(prompt) :]
            talk.text = str(loaded.tokenizer.decode(reply, skip_special_tokens=True))
            talk.usage = Usage(prompt_tokens=len(prompt), completion_tokens=len(reply))
            return talk

        return ask

    def together(self, ask: Ask, prompts: Sequence[Messages], tokens: int) -> list[Talk]:
        """Let as many people as there are prompts ask at the same moment."""
        ready = threading.Barrier(len(prompts))

        def one(prompt: Messages) -> Talk:
            ready.wait()
            return ask(prompt, tokens)

        with ThreadPoolExecutor(len(prompts)) as pool:
            futures = [pool.submit(one, prompt) for prompt in prompts]
            try:
                return [future.result() for future in futures]
            except KeyboardInterrupt:
                self.stopped.set()
                raise


class _Clock(StoppingCriteria):
    """Notes when each token is there."""

    def __init__(self, talk: Talk, stopped: threading.Event) -> None:
        self._talk, self._stopped = talk, stopped

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return one flag for each row of `input_ids`, shape (batch,)."""
        self._talk.arrivals.append(time.perf_counter())
        return torch.full((input_ids.shape[0],), self._stopped.is_set(), device=input_ids.device)
