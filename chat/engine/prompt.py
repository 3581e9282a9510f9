"""Messages to token ids: whole turns that fit into the model's window."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

from chat.engine.reasoning import find_format, split
from chat.engine.template import ChatTemplate, read_shipped
from chat.types import InvalidRequest, Message, Prompt, PromptTooLong

_SHORTEST_REPLY = 16
"""Fewer tokens than this are no answer, so a message that leaves less room is too long."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids to go on from.

    `max_new_tokens` is lowered so that prompt and reply fit into the window together. `tail` is what
    the prompt already holds of the reply: the mark of a thought that the template opens, or the text
    that is to be continued.
    """

    input_ids: list[int]
    max_new_tokens: int
    messages_left_out: int = 0
    tail: str = ""


class PromptEncoder:
    """Encode prompts for one model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, window: int, is_encoder_decoder: bool = False) -> None:
        """`window` is the most tokens of prompt and reply together; of either, for an encoder-decoder.

        Raises: ModelLoadError if the chat template is broken.
        """
        self._tokenizer, self._window, self._is_encoder_decoder = tokenizer, window, is_encoder_decoder
        self.thoughts = find_format(tokenizer)
        self._has_template = tokenizer.chat_template is not None
        source = None if self._has_template else read_shipped("newest" if is_encoder_decoder else "transcript")
        self._template = ChatTemplate(tokenizer, source, self.thoughts)
        self._control = re.compile("|".join(map(re.escape, self._control_tokens())) or "(?!)")
        self._before, self._behind = self._find_special_ids()

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that a reply ends before: the next speaker's mark, where it is no special token."""
        return self._template.stop_texts

    def encode(self, prompt: Prompt, max_new_tokens: int) -> EncodedPrompt:
        """Encode messages through the chat template, or a text as it stands.

        Over the window, the reply is shortened first, down to a quarter of the window; then the oldest
        turns are left out, never the system text or the newest turn. The newest turn alone may take
        all but 16 tokens.

        Raises: PromptTooLong; InvalidRequest, also with the template's own reason.
        """
        if isinstance(prompt, str):
            return self._fitting(self._surround(self._encode_plain(prompt)), max_new_tokens)
        system, turns = _split_turns(self._tidy(prompt))
        room = self._window - self._reserved(min(max_new_tokens, self._window // 4))

        def messages(first: int) -> list[Message]:
            return [*system, *chain.from_iterable(turns[first:])]

        @cache
        def ids(first: int) -> list[int]:
            return self._encode_chat(messages(first))

        first = 0
        if len(ids(0)) > room:
            first = bisect_left(range(len(turns) - 1), True, key=lambda first: len(ids(first)) <= room)
        left_out = sum(map(len, turns[:first]))
        return self._fitting(ids(first), max_new_tokens, left_out, self._template.tail(messages(first)))

    def _fitting(self, ids: list[int], max_new_tokens: int, left_out: int = 0, tail: str = "") -> EncodedPrompt:
        if len(ids) + self._reserved(min(max_new_tokens, _SHORTEST_REPLY)) > self._window:
            raise PromptTooLong(len(ids), self._window)
        return EncodedPrompt(ids, min(max_new_tokens, self._window - self._reserved(len(ids))), left_out, tail)

    def _reserved(self, tokens: int) -> int:
        """Return how much of the window `tokens` on the other side take away."""
        return 0 if self._is_encoder_decoder else tokens

    def _tidy(self, messages: Sequence[Message]) -> list[Message]:
        """Return plain messages: texts only, no earlier thoughts, one message a turn. Raises: InvalidRequest."""
        if not messages:
            raise InvalidRequest("There is no message to answer. Send one.", "messages")
        tidy = [self._tidy_message(message, message is messages[-1]) for message in messages]
        return [_merge(list(group)) for _, group in groupby(tidy, key=lambda message: message["role"])]

    def _tidy_message(self, message: Message, is_last: bool) -> Message:
        text = _flatten(message["content"])
        if message["role"] != "assistant":
            return {"role": message["role"], "content": text}
        if not is_last:
            return {"role": "assistant", "content": split(self.thoughts, text)[1]}
        return {"role": "assistant", "content": text, "thought": message.get("thought", "")}

    def _encode_chat(self, messages: list[Message]) -> list[int]:
        """Encode through the template; a control token that somebody typed is encoded as the text it is."""
        ids = self._encode_typed(messages) or self._encode_plain(self._template.prompt(messages))
        return ids if self._has_template else self._surround(ids)

    def _encode_typed(self, messages: list[Message]) -> list[int] | None:
        """Encode messages that hold control tokens as text, if there are such and the tokenizer can spell them so."""
        # The reply that is to go on is the model's own writing, so its marks are marks.
        own = messages[-1:] if messages[-1]["role"] == "assistant" else []
        typed = messages[: len(messages) - len(own)]
        safe = mark_control_tokens(typed, self._control)
        if safe == typed:
            return None
        with suppress(ValueError):
            return encode_marked_chat(self._tokenizer, self._template.prompt([*safe, *own]))
        return None

    def _encode_plain(self, text: str) -> list[int]:
        # Not verbose, because a prompt over the window is nothing to warn of: turns are left out then.
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def _surround(self, ids: list[int]) -> list[int]:
        """Add the special tokens that the tokenizer puts around a text, unless they are there already."""
        before = self._before if ids[: len(self._before)] != self._before else []
        return [*before, *ids, *self._behind]

    def _find_special_ids(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer puts before and behind a text."""
        text, whole = self._encode_plain("a"), self._tokenizer.encode("a")
        start = next((at for at in range(len(whole)) if whole[at : at + len(text)] == text), len(whole))
        # An end behind the prompt would tell a decoder that there is nothing more to say.
        return whole[:start], whole[start + len(text) :] if self._is_encoder_decoder else []

    def _control_tokens(self) -> list[str]:
        """Return the tokens that only a template may write, longest first."""
        template = str(self._tokenizer.chat_template)
        tokens = self._tokenizer.added_tokens_decoder.values()
        return sorted(
            (t.content for t in tokens if t.special or (t.content.strip() and t.content in template)),
            key=len,
            reverse=True,
        )


def _split_turns(messages: list[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Return the system message, if any, and the turns: a user message with its reply."""
    system = [message for message in messages if message["role"] == "system"]
    turns: list[list[Message]] = []
    for message in messages:
        if message["role"] == "user" or not turns:
            turns.append([])
        if message["role"] != "system":
            turns[-1].append(message)
    return system, turns


def _merge(messages: list[Message]) -> Message:
    """Return one message for several of the same role, in the last one's place."""
    merged = messages[-1].copy()
    merged["content"] = "\n\n".join(m["content"] for m in messages if m["content"])
    return merged


def _flatten(content: object) -> str:
    """Return the plain text of a content: a text, a list of texts, a list of blocks, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _flatten(content.get("text"))
    return "".join(map(_flatten, content)) if isinstance(content, list | tuple) else ""
