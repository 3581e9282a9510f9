"""transformers' batching manager, set up so that each request keeps its own params and is seen while it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager
from transformers.generation.continuous_batching.requests import FutureRequestState, GenerationOutput

from chat.engine.attention import split_attention_by_request
from chat.engine.choosing import Choice, TokenChooser
from chat.engine.pages import MOST_REQUESTS, PagePool


class Batch:
    """A running manager with its own thread. It dies with the first error in the model, and is not started again."""

    def __init__(
        self,
        model: PreTrainedModel,
        pool: PagePool,
        end_ids: Collection[int],
        watch: Callable[[Sequence[FutureRequestState]], None] = lambda members: None,
    ) -> None:
        """`watch` is called in the manager's thread before each step, with the requests that take part in it."""
        self._end_ids = list(end_ids) or [-1]
        if model.device.type == "cpu":
            # On an accelerator, many small calls cost more than they save.
            split_attention_by_request()
        generative: Any = model
        self._manager: ContinuousBatchingManager = generative.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=self._end_ids),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=pool.page_tokens,
                num_blocks=pool.pages,
                max_batch_tokens=pool.step_tokens,
                max_requests_per_batch=MOST_REQUESTS,
                max_memory_percent=1.0,
                auto_switch_to_flash=False,
                # The chooser runs Python at each step, which neither a graph nor a step in advance can.
                use_cuda_graph=False,
                use_async_batching=False,
            ),
        )
        self._manager.logit_processor = TokenChooser(watch)
        with torch.inference_mode():
            self._manager.start()

    @property
    def dead(self) -> bool:
        """Whether the manager has stopped, or is about to."""
        refuses = self._manager.background_thread_status.can_accept_new_requests() is not None
        return refuses or not self._manager.is_running()

    def failure(self) -> Exception:
        """Wait for the end of a dead manager; return why it died."""
        self.stop()
        return self._manager.background_thread_status.fatal_error or RuntimeError("The batch has ended")

    def add(self, id: str, input_ids: Sequence[int], choice: Choice, max_new_tokens: int) -> None:
        """Begin a request; its tokens come out of `output`."""
        self._manager.add_request(
            list(input_ids),
            id,
            max_new_tokens=max_new_tokens,
            streaming=True,
            eos_token_id=self._end_ids,
            choice=choice,
        )

    def cancel(self, id: str) -> None:
        """End a request before the next step; its pages are free then."""
        self._manager.cancel_request(id)

    def output(self, timeout: float) -> GenerationOutput | None:
        """Return the next news of a request, with all its tokens so far; None after `timeout` seconds without any."""
        output: GenerationOutput | None = self._manager.get_result(timeout=timeout)
        return output

    def stop(self) -> None:
        """End the manager's thread after its present step."""
        if self._manager.is_running():
            self._manager.stop(block=True, hard_stop=True)
