"""Messages to token ids: whole turns that fit into the model's window."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import chain

from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

from chat.engine.reasoning import find_format, special_tokens
from chat.engine.template import ChatTemplate, read_shipped
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
        self._tokenizer, self._window, self._is_encoder_decoder = tokenizer, window, is_encoder_decoder
        self.thoughts = find_format(tokenizer)
        self._has_template = tokenizer.chat_template is not None
        self._reads_newest_only = is_encoder_decoder and not self._has_template
        source = None if self._has_template else read_shipped("newest" if is_encoder_decoder else "transcript")
        self._template = ChatTemplate(tokenizer, source, self.thoughts)
        self._control_start = self._find_control_start()
        self._before, self._behind = self._find_special_ids()

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that a reply ends before: the next speaker's mark, where no special token ends a turn."""
        return self._template.stop_texts

    def encode(self, prompt: Prompt, max_new_tokens: int) -> EncodedPrompt:
        """Encode messages through the chat template, or a text as it stands.

        Over the window, the reply is shortened first, down to a quarter of the window; then the oldest
        turns are left out, but never the system text or the newest turn, which may take all but 16 tokens.

        Raises: PromptTooLong; InvalidRequest, also with the template's own reason.
        """
        if isinstance(prompt, str):
            return self._fit(self._surround(self._encode_text(prompt)), max_new_tokens)
        if self._is_encoder_decoder and prompt and prompt[-1]["role"] == "assistant":
            raise InvalidRequest("This model cannot go on with a reply. Retry it instead.", "messages")
        system, turns = split_turns(prompt, self.thoughts)
        room = self._window - self._reserved(min(max_new_tokens, self._window // 4))

        @cache
        def encode_from(turn: int) -> tuple[list[int], str]:
            return self._encode_chat([*system, *chain.from_iterable(turns[turn:])])

        newest = len(turns) - 1
        first = max(0, newest) if self._reads_newest_only else 0
        if len(encode_from(first)[0]) > room:
            first = bisect_left(range(newest), True, first, key=lambda turn: len(encode_from(turn)[0]) <= room)
        ids, tail = encode_from(first)
        return self._fit(ids, max_new_tokens, sum(map(len, turns[:first])), tail)

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
        """Return the ids and the tail; a control token that somebody typed is encoded as the text it is."""
        # A reply that is to go on is the model's own writing, so its marks are marks.
        own = messages[-1:] if messages[-1]["role"] == "assistant" else []
        typed = messages[: len(messages) - len(own)]
        safe = mark_control_tokens(typed, self._control_start)
        text, tail = self._template.write([*safe, *own])
        ids = self._encode_text(text) if safe == typed else encode_marked_chat(self._tokenizer, text)
        return ids if self._has_template else self._surround(ids), tail

    def _encode_text(self, text: str) -> list[int]:
        # Not verbose, because a prompt over the window is nothing to warn of: turns are left out then.
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def _surround(self, ids: list[int]) -> list[int]:
        """Add the special tokens that the tokenizer puts around a text, unless they are there already."""
        before = self._before if ids[: len(self._before)] != self._before else []
        return [*before, *ids, *self._behind]

    def _find_special_ids(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer puts before and behind a text."""
        text, whole = self._encode_text("a"), self._tokenizer.encode("a")
        start = next((at for at in range(len(whole)) if whole[at : at + len(text)] == text), None)
        if start is None:
            return [], []
        # An end behind the prompt would tell a decoder that there is nothing more to say.
        return whole[:start], whole[start + len(text) :] if self._is_encoder_decoder else []

    def _find_control_start(self) -> re.Pattern[str]:
        """Return what matches the first character of a token that only a template may write.

        A text is not joined across a mark, so marking one character is enough to break such a token up,
        also for tokenizers that know it by its spelling.
        """
        template = str(self._tokenizer.chat_template)
        written = {token for token in self._tokenizer.added_tokens_encoder if token.strip() and token in template}
        control = sorted(special_tokens(self._tokenizer) | written)
        return re.compile(rf"(?={'|'.join(map(re.escape, control))})." if control else "(?!)", re.DOTALL)
