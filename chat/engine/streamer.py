"""What a generating thread writes into and a reader iterates over."""

from __future__ import annotations

import time
from collections.abc import Collection
from queue import Empty

import torch
from transformers import PreTrainedTokenizerBase, TextIteratorStreamer

from chat.engine.decoder import IncrementalDecoder
from chat.engine.reasoning import ThoughtSplitter
from chat.engine.stop_texts import StopTexts
from chat.types import ChatError, Chunk

HEARTBEAT_S = 0.1


class ReplyStreamer(TextIteratorStreamer):
    """Turn the tokens of one reply into chunks: decoded exactly, thought split off, cut at stop texts.

    Differs from its parent in what it promises: every character goes out as soon as it is certain;
    an error in the writing thread reaches the reader; and the reader is never blocked for longer than
    0.1 s, an empty chunk says that there is nothing yet.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder: IncrementalDecoder,
        splitter: ThoughtSplitter,
        stops: StopTexts,
        hidden_ids: Collection[int],
    ) -> None:
        """`hidden_ids` are the special tokens that are not text, the end tokens among them."""
        super().__init__(tokenizer, skip_prompt=True, timeout=HEARTBEAT_S)
        self._decoder, self._splitter, self._stops, self._hidden_ids = decoder, splitter, stops, hidden_ids
        self._ended = False
        self.token_ids: list[int] = []
        self.first_token_at = 0.0
        self.last_token_at = 0.0

    @property
    def stop_text_found(self) -> bool:
        """Whether the reply has reached a stop text, so that no further token is needed."""
        return self._stops.matched

    def put(self, value: torch.Tensor) -> None:
        """Take the next token ids, shape (1,) or (1, n). The first call holds the prompt and is skipped."""
        if self.next_tokens_are_prompt:
            self.next_tokens_are_prompt = False
            return
        for token_id in value.flatten().tolist():
            self.put_token(token_id)

    def put_token(self, token_id: int) -> None:
        """Take the next token of the reply."""
        self.last_token_at = time.perf_counter()
        self.first_token_at = self.first_token_at or self.last_token_at
        self.token_ids.append(token_id)
        if token_id not in self._hidden_ids:
            self._put_text(self._decoder.feed(token_id))

    def end(self) -> None:
        """Let out what was held back and end the reader's loop. Further calls do nothing."""
        self._end(self.stop_signal)

    def fail(self, error: ChatError) -> None:
        """Let out what was held back, then raise `error` in the reader's loop."""
        self._end(error)

    def _end(self, signal: ChatError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._put_text(self._decoder.finish())
        thought, answer = self._splitter.finish()
        self._put_chunk(thought, self._stops.feed(answer) + self._stops.finish())
        self.text_queue.put(signal)

    def _put_text(self, text: str) -> None:
        if text:
            thought, answer = self._splitter.feed(text)
            self._put_chunk(thought, self._stops.feed(answer))

    def _put_chunk(self, thought: str, answer: str) -> None:
        if thought or answer:
            self.text_queue.put(Chunk(text=answer, thought=thought))

    def __next__(self) -> Chunk:
        """Return the next chunk, an empty one after 0.1 s without any. Raises: the writer's ChatError."""
        try:
            item: Chunk | ChatError | None = self.text_queue.get(timeout=self.timeout)
        except Empty:
            return Chunk()
        if isinstance(item, ChatError):
            raise item
        if item is None:
            raise StopIteration
        return item
