"""Token ids in, text out, each character as soon as no later token can change it."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from chat.engine.stop_texts import partial_match

# transformers' `clean_up_tokenization` takes the first space out of these.
_CLEANED_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 4  # bytes in UTF-8
_LONGEST_WAIT = 16  # tokens; no character takes so many, so what is not text by then never will be


class IncrementalDecoder:
    """Decode one growing sequence so that the joined pieces equal the decode of all its ids.

    A token's text depends on its neighbours: a character may span tokens, and many tokenizers drop
    the space of the first word they decode. So each new token is decoded behind `context`, the tokens
    of the last finished piece, and only the difference counts. Both lists stay short, so the cost of a
    token does not grow with the reply. Works on any tokenizer, with a Rust core or without.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, context: Sequence[int] = ()) -> None:
        """Start a sequence; `context` holds the ids before it if it continues a text."""
        self._tokenizer = tokenizer
        self._context = list(context)
        self._context_text = self._decode(self._context)
        self._pending: list[int] = []
        self._sent = 0

    def feed(self, token_id: int) -> str:
        """Take one more token; return the text that has become certain."""
        self._pending.append(token_id)
        text = self._pending_text()
        stuck = len(self._pending) > _LONGEST_WAIT
        certain = text if stuck else text[: len(text) - self._uncertain(text)]
        piece, self._sent = certain[self._sent :], max(self._sent, len(certain))
        # A token without text of its own stays pending: as a context it would let the next space be dropped.
        if stuck or (text and len(certain) == len(text)):
            self._context, self._pending, self._sent = self._pending, [], 0
            self._context_text = self._decode(self._context)
        return piece

    def finish(self) -> str:
        """Return what was held back, half characters as U+FFFD."""
        piece, self._pending = self._pending_text()[self._sent :], []
        return piece

    def _pending_text(self) -> str:
        if not self._pending:
            return ""
        text = self._decode(self._context + self._pending)
        if text.startswith(self._context_text):
            return text[len(self._context_text) :]
        # Byte-fallback decoders spoil a whole run of byte tokens while its last character is cut.
        return self._decode(self._pending)

    def _uncertain(self, text: str) -> int:
        """Count the last characters that the next token may change."""
        spaces = partial_match(text, _CLEANED_UP) if self._tokenizer.clean_up_tokenization_spaces else 0
        halves = len(text) - len(text.rstrip(_REPLACEMENT))
        return max(spaces, min(halves, _LONGEST_CHARACTER - 1))

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids)) if ids else ""
