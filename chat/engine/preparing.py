"""From what was asked to a request that a local engine can work on."""

from __future__ import annotations

import threading

from chat.engine.decoder import IncrementalDecoder
from chat.engine.loading import LoadedModel
from chat.engine.prompt import PromptEncoder
from chat.engine.reasoning import ThoughtSplitter
from chat.engine.request import Request
from chat.engine.stop_texts import StopTexts
from chat.engine.streamer import ReplyStreamer
from chat.types import GenerationParams, Prompt

_CONTEXT = 8  # prompt tokens that a continued text is decoded behind


class Preparer:
    """Knows a model's tokenizer, its way of marking thoughts, and its end tokens."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._tokenizer, self._info = loaded.tokenizer, loaded.info
        self._encoder = PromptEncoder(
            loaded.tokenizer, loaded.info.window, is_encoder_decoder=loaded.model.config.is_encoder_decoder
        )
        # A tokenizer may change its own truncation settings while it encodes, so one thread at a time.
        self._encoding = threading.Lock()
        self._format = self._encoder.thoughts
        config = loaded.model.generation_config
        ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id or []
        # A template may end a turn with a token that the model's own settings forget.
        self.end_ids = self._encoder.end_ids.union(ends)
        config.eos_token_id = sorted(self.end_ids) or None
        self._hidden_ids = self._find_hidden_ids()

    def prepare(self, prompt: Prompt, params: GenerationParams) -> Request:
        """Encode a prompt and give it a streamer. Raises: PromptTooLong, InvalidRequest."""
        params = params.over(self._info.defaults)
        with self._encoding:
            encoded = self._encoder.encode(prompt, params.max_new_tokens or self._info.window)
        raw = isinstance(prompt, str)
        continues = isinstance(prompt, str) or prompt[-1]["role"] == "assistant"
        stops = params.stop if raw else (*params.stop, *self._encoder.stop_texts)
        streamer = ReplyStreamer(
            self._tokenizer,
            IncrementalDecoder(self._tokenizer, encoded.input_ids[-_CONTEXT:] if continues else ()),
            ThoughtSplitter(None if raw else self._format, encoded.tail),
            StopTexts(stops),
            self._hidden_ids,
        )
        return Request(encoded, params, streamer)

    def _find_hidden_ids(self) -> frozenset[int]:
        """Collect the special tokens that are no part of a thought's marks, and the end tokens."""
        special = {id_ for id_, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        shown = {self._tokenizer.convert_tokens_to_ids(token) for token in self._format.tokens}
        return frozenset((special | set(self._tokenizer.all_special_ids)) - shown | self.end_ids)
