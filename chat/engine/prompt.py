"""Messages to token ids: whole turns that fit into the model's window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain

from transformers import PreTrainedTokenizerBase

from chat.engine.reasoning import find_format
from chat.engine.template import ChatTemplate, read_shipped
from chat.engine.text_encoder import TextEncoder
from chat.engine.turns import split_turns
from chat.types import InvalidRequest, Message, Prompt, PromptTooLong

_SHORTEST_REPLY = 16
"""Fewer tokens than this are no answer, so a message that leaves less room is too long."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids to go on from, at most `max_new_tokens` further, so that all fits into the window.

    `tail` is what the prompt already holds of the reply: the mark of a thought that the template opens,
    or the text that is to be continued.
    """

    input_ids: list[int]
    max_new_tokens: int
    messages_left_out: int = 0
    tail: str = ""


class PromptEncoder:
    """Encode prompts for one model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, window: int, *, is_encoder_decoder: bool = False) -> None:
        """`window` is the most tokens of prompt and reply together; of each, for an encoder-decoder.

        A tokenizer without a chat template gets a plain transcript; an encoder-decoder without one reads
        the system text and the newest message. Raises: ModelLoadError if the chat template is broken.
        """
        self._window, self._is_encoder_decoder = window, is_encoder_decoder
        self._has_template = tokenizer.chat_template is not None
        self._reads_newest_only = is_encoder_decoder and not self._has_template
        source = None if self._has_template else read_shipped("newest" if is_encoder_decoder else "transcript")
        self.thoughts = find_format(tokenizer)
        self._template = ChatTemplate(tokenizer, source, self.thoughts)
        self._text = TextEncoder(tokenizer, is_encoder_decoder=is_encoder_decoder)
        self._turn_tokens = self._measure_turn()
        self.stop_texts = self._template.stop_texts
        """Texts that a reply ends before: the next speaker's mark, where no special token ends a turn."""
        # Where the end of a message is a mark of the thoughts' format, a thought ends with it too.
        ends = set(self._template.end_tokens) - self.thoughts.tokens
        self.end_ids = frozenset(id_ for token, id_ in tokenizer.added_tokens_encoder.items() if token in ends)
        """Ids that end a reply by the template, whether or not the model's own settings name them."""

    def encode(self, prompt: Prompt, max_new_tokens: int) -> EncodedPrompt:
        """Encode messages through the chat template, or a text as it stands.

        Over the window, the reply is shortened first, down to a quarter of the window; then the oldest
        turns are left out, but never the system text or the newest turn, which may take all but 16 tokens.

        Raises: PromptTooLong; InvalidRequest, also with the template's own reason.
        """
        if isinstance(prompt, str):
            return self._fit(self._text.encode_whole(prompt), max_new_tokens)
        if self._is_encoder_decoder and prompt and prompt[-1]["role"] == "assistant":
            raise InvalidRequest("This model cannot go on with a reply. Retry it instead.", "messages")
        system, turns = split_turns(prompt, self.thoughts)
        encode_from = cache(lambda first: self._encode_chat([*system, *chain.from_iterable(turns[first:])]))
        first = self._choose_first(turns, encode_from, max_new_tokens)
        ids, tail = encode_from(first)
        return self._fit(ids, max_new_tokens, sum(map(len, turns[:first])), tail)

    def _choose_first(
        self,
        turns: Sequence[Sequence[Message]],
        encode_from: Callable[[int], tuple[list[int], str]],
        max_new_tokens: int,
    ) -> int:
        """Return the oldest turn from which on all fits, or else the newest."""
        newest = max(0, len(turns) - 1)
        if self._reads_newest_only:
            return newest
        room = self._window - self._reserved(min(max_new_tokens, self._window // 4))
        first = min(newest, self._guess_first(turns, room))
        while first < newest and len(encode_from(first)[0]) > room:
            first += 1
        while first > 0 and len(encode_from(first - 1)[0]) <= room:
            first -= 1
        return first

    def _guess_first(self, turns: Sequence[Sequence[Message]], room: int) -> int:
        """Return the oldest turn that will still fit, by counting turns alone and no more than fit.

        Encoding is most of the work, and a long history must not be encoded whole again and again.
        """
        for turn in range(len(turns) - 1, -1, -1):
            room -= self._turn_tokens + sum(len(self._text.encode(message["content"])) for message in turns[turn])
            if room < 0:
                return turn + 1
        return 0

    def _measure_turn(self) -> int:
        """Return how many tokens the template adds to a turn."""
        question: Message = {"role": "user", "content": "a"}
        turn: list[Message] = [question, {"role": "assistant", "content": "a"}]
        with suppress(InvalidRequest):
            one, two = (len(self._encode_chat([*turn * count, question])[0]) for count in (1, 2))
            return two - one - 2 * len(self._text.encode("a"))
        return 0

    def _fit(self, ids: list[int], max_new_tokens: int, left_out: int = 0, tail: str = "") -> EncodedPrompt:
        if not ids:
            raise InvalidRequest("The text is empty. Write something first.")
        if len(ids) + self._reserved(min(max_new_tokens, _SHORTEST_REPLY)) > self._window:
            raise PromptTooLong(len(ids), self._window)
        return EncodedPrompt(ids, min(max_new_tokens, self._window - self._reserved(len(ids))), left_out, tail)

    def _reserved(self, tokens: int) -> int:
        """Return how much of the window `tokens` take away from the other side."""
        return 0 if self._is_encoder_decoder else tokens

    def _encode_chat(self, messages: list[Message]) -> tuple[list[int], str]:
        """Return the ids and the tail."""
        # A reply that is to go on is the model's own writing, so its marks are marks.
        own = messages[-1:] if messages[-1]["role"] == "assistant" else []
        text, tail = self._template.write([*self._text.protect(messages[: len(messages) - len(own)]), *own])
        # A template writes the special tokens itself.
        return self._text.encode(text) if self._has_template else self._text.encode_whole(text), tail
