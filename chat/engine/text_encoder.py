"""A tokenizer's text side: what counts as text, and what only a template may write."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

from chat.engine.reasoning import special_tokens
from chat.types import Message


class TextEncoder:
    """Encode texts in which control tokens that somebody typed stay the text they are."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, is_encoder_decoder: bool) -> None:
        self._tokenizer = tokenizer
        self._control = _match_control_starts(tokenizer)
        self._mark = mark_control_tokens("a", re.compile("a"))[0]
        # An end behind the prompt would tell a decoder that there is nothing more to say.
        self._before, behind = self._find_special_ids()
        self._behind = behind if is_encoder_decoder else []

    def protect(self, messages: Sequence[Message]) -> list[Message]:
        """Mark the control tokens in what was typed, so that `encode` takes them for text."""
        protected: list[Message] = mark_control_tokens(list(messages), self._control)
        return protected

    def encode(self, text: str) -> list[int]:
        """Encode a text to which no special token is added."""
        ids: list[int]
        if self._mark in text:
            ids = encode_marked_chat(self._tokenizer, text)
        else:
            # Not verbose, because a prompt over the window is nothing to warn of: turns are left out then.
            ids = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def encode_whole(self, text: str) -> list[int]:
        """Encode a text with the tokenizer's usual special tokens around it, unless it begins with them already."""
        ids = self.encode(text)
        before = self._before if ids[: len(self._before)] != self._before else []
        return [*before, *ids, *self._behind]

    def _find_special_ids(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer puts before and behind a text."""
        text, whole = self.encode("a"), self._tokenizer.encode("a")
        starts = [at for at in range(len(whole)) if whole[at : at + len(text)] == text]
        return (whole[: starts[0]], whole[starts[0] + len(text) :]) if starts else ([], [])


def _match_control_starts(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Return what matches the first character of a token that only a template may write.

    A text is not joined across a mark, so marking one character breaks such a token up, also for
    tokenizers that know it by its spelling.
    """
    template = str(tokenizer.chat_template)
    written = {token for token in tokenizer.added_tokens_encoder if token.strip() and token in template}
    control = special_tokens(tokenizer) | written
    if not control:
        return re.compile("(?!)")
    # There may be a thousand of them, so look at the first character first.
    starts = "".join(re.escape(start) for start in {token[0] for token in control})
    return re.compile(rf"(?=[{starts}])(?={'|'.join(map(re.escape, control))}).", re.DOTALL)
