"""Thought and answer, told apart while both stream."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from jinja2 import TemplateError

from chat.engine.stop_texts import partial_match
from chat.engine.thought_formats import COMMON_TAGS, FAMILIES, RARE_TAGS, TAGGED, Part, State, ThoughtFormat, tagged

if TYPE_CHECKING:
    # Not needed to split what a server sends, and slow to import.
    from transformers import PreTrainedTokenizerBase

Parts: TypeAlias = dict[Part, str]

_BLANKS = " \t\r\n"  # not every Unicode space: an ideographic one at the start of a paragraph is text
_PLAIN = {"start": State("answer")}


class ThoughtSplitter:
    """Take a reply's text as it comes, give out thought and answer as soon as they are certain.

    The blanks behind an opening mark and around a closing one are dropped. Nothing else is changed: an
    answer without a thought is passed on with the blanks it begins with, for they may be indentation.
    Held back are at most the beginning of a mark and the blanks that would be dropped beside one.
    """

    def __init__(self, format: ThoughtFormat | None, tail: str = "") -> None:
        """`tail` is what the prompt already holds of the reply. Without a format all is answer."""
        self._states = format.states if format else _PLAIN
        self._state = self._states["start"]
        self._held = self._gap = ""
        self._behind_mark = False
        self._written: set[Part] = set()
        self._known = 0  # characters of the held text that are in the tail, so were given out before
        self.feed(tail)
        self._gap, self._known = "", len(self._held)

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next text; return what is newly certain of (thought, answer)."""
        self._held += text
        parts: Parts = {"thought": "", "answer": ""}
        while self._held and (self._begin() if self._state.otherwise else self._go_on(parts)):
            pass
        return parts["thought"], parts["answer"]

    def finish(self) -> tuple[str, str]:
        """Return what was held back."""
        parts: Parts = {"thought": "", "answer": ""}
        self._write(self._take(len(self._held)), parts)
        thought = parts["thought"] + self._gap
        self._gap = ""
        return thought, parts["answer"]

    def _begin(self) -> bool:
        """Enter the state that the first text leads to; return False if it is too short to tell."""
        text = self._held.lstrip(_BLANKS)
        if any(len(text) < len(mark) and mark.startswith(text) for mark in self._state.marks):
            return False
        mark = next((mark for mark in self._state.marks if text.startswith(mark)), None)
        if mark is None:
            self._state = self._states[self._state.otherwise]
        else:
            self._take(len(self._held) - len(text))
            self._pass(mark)
        return True

    def _go_on(self, parts: Parts) -> bool:
        """Write up to the next mark and pass it; return False if there is no whole one."""
        whole = [(self._held.find(mark), mark) for mark in self._state.marks if mark in self._held]
        if not whole:
            certain = len(self._held) - partial_match(self._held, tuple(self._state.marks))
            self._write(self._take(certain), parts)
            return False
        start, mark = min(whole)
        self._write(self._take(start), parts)
        self._pass(mark)
        return True

    def _pass(self, mark: str) -> None:
        self._take(len(mark))
        self._state = self._states[self._state.marks[mark]]
        self._behind_mark, self._gap = True, ""

    def _take(self, count: int) -> str:
        """Cut `count` characters off the held text; return those that did not come from the tail."""
        text, self._held = self._held[self._known : count], self._held[count:]
        self._known = max(0, self._known - count)
        return text

    def _write(self, text: str, parts: Parts) -> None:
        """Add `text` to the part it belongs to, without the blanks beside marks."""
        part = self._state.part
        if self._behind_mark:
            text = text.lstrip(_BLANKS)
        if part is None or not text:
            return
        if self._behind_mark and part in self._written:
            text = "\n\n" + text
        self._behind_mark = False
        self._written.add(part)
        if part == "thought":
            text = self._gap + text
            self._gap = text[len(text.rstrip(_BLANKS)) :]
            text = text.rstrip(_BLANKS)
        parts[part] += text


def split(format: ThoughtFormat, text: str) -> tuple[str, str]:
    """Split a whole reply into (thought, answer)."""
    splitter = ThoughtSplitter(format)
    (thought, answer), (last_thought, last_answer) = splitter.feed(text), splitter.finish()
    return thought + last_thought, answer + last_answer


def find_format(tokenizer: PreTrainedTokenizerBase) -> ThoughtFormat:
    """Return how the tokenizer's model marks its thoughts, as far as can be known; else the common tags."""
    special = special_tokens(tokenizer)
    found = _find_family(tokenizer) or _find_tags(tokenizer, special) or TAGGED
    return replace(found, tokens=frozenset(t for t in special if any(t in mark for mark in found.marks)))


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """Return the tokens that are no text. Tokenizers without a Rust core do not flag all of them."""
    flagged = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return flagged | set(tokenizer.all_special_tokens)


def _find_family(tokenizer: PreTrainedTokenizerBase) -> ThoughtFormat | None:
    vocabulary = tokenizer.added_tokens_encoder
    return next((family for token, family in FAMILIES.items() if token in vocabulary), None)


def _find_tags(tokenizer: PreTrainedTokenizerBase, special: set[str]) -> ThoughtFormat | None:
    pair = _read_response_template(tokenizer) or _read_chat_template(tokenizer) or _recognize(tokenizer)
    if pair is None:
        return None
    return tagged(*pair, *COMMON_TAGS, anywhere=any(pair[0].startswith(token) for token in special))


def _read_response_template(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
    """Return the marks that the tokenizer's own description of replies gives (transformers.utils.chat_parsing)."""
    fields: dict[str, Any] = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
    for name in ("reasoning_content", "thinking", "reasoning"):
        marks = [fields.get(name, {}).get(side) for side in ("open", "close")]
        opening, closing = (mark[0] if isinstance(mark, list) else mark for mark in marks)
        if opening and closing:
            return opening, closing
    return None


def _read_chat_template(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
    """Let the chat template write a thought, and return the tags that it puts around it."""
    reply = {"role": "assistant", "content": "B", "reasoning_content": "A thought"}
    try:
        text = tokenizer.apply_chat_template([{"role": "user", "content": "A"}, reply], tokenize=False)
    except (TemplateError, TypeError, ValueError):
        return None
    tag = r"[<\[][^<>\[\]\s]*(?:think|thought|reason)[^<>\[\]\s]*[>\]]"
    found = re.search(rf"({tag}\s*)A thought(\s*{tag}\s*)", str(text), re.IGNORECASE)
    return (found[1], found[2]) if found else None


def _recognize(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
    """Return the rare tags that the vocabulary or the chat template knows, if any."""
    known = tokenizer.added_tokens_encoder.keys() | {str(tokenizer.chat_template)}
    return next((pair for pair in RARE_TAGS if any(pair[0].strip() in text for text in known)), None)
