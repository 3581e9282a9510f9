"""Split a thought from an answer while both stream.

A format is a small table: in each state, which marks may come and which state each leads to. One
machine runs them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from transformers import PreTrainedTokenizerBase

from chat.engine.stop_texts import partial_match

Part: TypeAlias = Literal["thought", "answer"]

_BLANKS = " \t\r\n"  # not every Unicode space: an ideographic one at a paragraph's start is text


@dataclass(frozen=True)
class State:
    """Where text goes (nowhere if `part` is None), and the state behind each mark.

    A state with `otherwise` looks only at what comes first, blanks aside: a mark of its own, or any
    other text, which leads to that state.
    """

    part: Part | None
    marks: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""


@dataclass(frozen=True)
class ThoughtFormat:
    """How a family of models marks its thoughts. The table begins in the state "start".

    `opening` and `closing` are what stands before and behind a thought in the model's own convention.
    `tokens` are the special tokens of a tokenizer that belong to the marks, so are not to be hidden.
    """

    opening: str
    closing: str
    states: Mapping[str, State]
    tokens: frozenset[str] = frozenset()

    @property
    def marks(self) -> frozenset[str]:
        """Every mark of the table."""
        return frozenset(mark for state in self.states.values() for mark in state.marks)


def tagged(*pairs: tuple[str, str], anywhere: bool = False) -> ThoughtFormat:
    """Return a format of (opening, closing) tags, the first pair being the model's own.

    A thought opens only where the reply starts, because a tag further on is what the answer speaks of;
    unless `anywhere`, for tags that are special tokens and so can mean nothing else.
    """
    opens = {opening: f"inside {opening}" for opening, _ in pairs}
    closes = {closing: "answer" for _, closing in pairs}
    states = {opens[opening]: State("thought", {closing: "answer"}) for opening, closing in pairs}
    states["start"] = State("answer", opens, otherwise="answer")
    states["answer"] = State("answer", {**opens, **closes} if anywhere else {})
    return ThoughtFormat(f"{pairs[0][0]}\n", f"\n{pairs[0][1]}\n\n", states)


THINK = (("<think>", "</think>"), ("<thinking>", "</thinking>"))

TAGGED = tagged(*THINK)
"""What a model that says nothing of its marks is read by."""

_HARMONY_BODY = {
    "<|end|>": "start",
    "<|return|>": "start",
    "<|call|>": "start",
    "<|start|>": "role",
    "<|channel|>": "channel",
}

HARMONY = ThoughtFormat(
    opening="<|channel|>analysis<|message|>",
    closing="<|end|><|start|>assistant<|channel|>final<|message|>",
    states={
        "start": State("answer", {"<|channel|>": "channel", "<|message|>": "answer", "<|start|>": "role"}, "answer"),
        "role": State(None, {"assistant": "start", "<|channel|>": "channel", "<|message|>": "answer"}),
        # Commentary is for tools and plans, so it is folded away with the thought.
        "channel": State(None, {"analysis": "aside", "commentary": "aside", "final": "role", "<|message|>": "answer"}),
        "aside": State(None, {"<|message|>": "thought"}),
        "thought": State("thought", _HARMONY_BODY),
        "answer": State("answer", _HARMONY_BODY),
    },
)
"""gpt-oss: <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>"""

GEMMA = ThoughtFormat(
    opening="<|channel>thought\n",
    closing="\n<channel|>",
    states={
        "start": State("answer", {"<|channel>": "channel"}, "answer"),
        "channel": State(None, {"thought": "thought", "\n": "answer", "<channel|>": "answer"}),
        "thought": State("thought", {"<channel|>": "answer"}),
        "answer": State("answer", {"<|channel>": "channel", "<channel|>": "answer"}),
    },
)
"""Gemma 4: <|channel>thought\\n...<channel|>..."""

COHERE = ThoughtFormat(
    opening="<|START_THINKING|>",
    closing="<|END_THINKING|><|START_RESPONSE|>",
    states={
        "start": State("answer", {"<|START_THINKING|>": "thought", "<|START_RESPONSE|>": "answer"}, "answer"),
        "thought": State("thought", {"<|END_THINKING|>": "answer", "<|START_RESPONSE|>": "answer"}),
        "answer": State(
            "answer",
            {"<|START_THINKING|>": "thought", "<|START_RESPONSE|>": "answer", "<|END_RESPONSE|>": "answer"},
        ),
    },
)
"""Command R and A: <|START_THINKING|>...<|END_THINKING|><|START_RESPONSE|>...<|END_RESPONSE|>"""

_BY_TOKEN = {"<|channel|>": HARMONY, "<|channel>": GEMMA, "<|START_THINKING|>": COHERE}

_PAIRS = (
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("◁think▷", "◁/think▷"),
    ("<thought>", "</thought>"),
)
"""Tags that only some models know; looked for in the vocabulary and in the chat template."""

_PLAIN = {"start": State("answer")}


def find_format(tokenizer: PreTrainedTokenizerBase) -> ThoughtFormat:
    """Return how the tokenizer's model marks its thoughts, as far as can be known; else the common tags."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    found = _find_format(tokenizer, special)
    return replace(found, tokens=frozenset(t for t in special if any(t in mark for mark in found.marks)))


def _find_format(tokenizer: PreTrainedTokenizerBase, special: set[str]) -> ThoughtFormat:
    vocabulary = tokenizer.added_tokens_encoder
    for token, family in _BY_TOKEN.items():
        if token in vocabulary:
            return family
    template = str(tokenizer.chat_template)
    for pair in _candidate_pairs(tokenizer):
        if pair[0] in vocabulary or pair[0] in template:
            return tagged(pair, *THINK, anywhere=any(pair[0].startswith(token) for token in special))
    return TAGGED


def _candidate_pairs(tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, str]]:
    yield from _PAIRS


def split(format: ThoughtFormat, text: str) -> tuple[str, str]:
    """Split a whole reply into (thought, answer)."""
    splitter = ThoughtSplitter(format)
    (thought, answer), (last_thought, last_answer) = splitter.feed(text), splitter.finish()
    return thought + last_thought, answer + last_answer


class ThoughtSplitter:
    """Take a reply's text as it comes, give out thought and answer as soon as they are certain.

    Held back are, at most, a possible beginning of a mark and the blanks that would be trimmed beside one.
    """

    def __init__(self, format: ThoughtFormat | None, tail: str = "") -> None:
        """`tail` is what the prompt already holds of the reply. Without a format all is answer."""
        self._states = format.states if format else _PLAIN
        self._state = self._states["start"]
        self._held = self._gap = ""
        self._known = 0
        self._after_mark = False
        self._written: set[Part] = set()
        self.feed(tail)
        self._gap, self._known = "", len(self._held)

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next text; return what is newly certain of (thought, answer)."""
        self._held += text
        parts: dict[Part, str] = {"thought": "", "answer": ""}
        while self._held:
            if self._state.otherwise:
                if not self._step_at_start():
                    break
                continue
            certain, mark = self._find_mark()
            self._write(self._take(certain), parts)
            if mark is None:
                break
            self._pass(mark)
        return parts["thought"], parts["answer"]

    def finish(self) -> tuple[str, str]:
        """Return what was held back."""
        parts: dict[Part, str] = {"thought": "", "answer": ""}
        self._write(self._take(len(self._held)), parts)
        parts["thought"] += self._gap
        self._gap = ""
        return parts["thought"], parts["answer"]

    def _step_at_start(self) -> bool:
        """Enter the state that the first text leads to; return False if it is too short to tell."""
        text = self._held.lstrip(_BLANKS)
        mark = next((mark for mark in self._state.marks if text.startswith(mark)), None)
        if mark is None and any(mark.startswith(text) for mark in self._state.marks):
            return False
        if mark is None:
            self._state = self._states[self._state.otherwise]
        else:
            self._take(len(self._held) - len(text))
            self._pass(mark)
        return True

    def _find_mark(self) -> tuple[int, str | None]:
        """Return how much of the held text is certainly no mark, and the mark that follows it, if it is whole."""
        whole = [(self._held.find(mark), mark) for mark in self._state.marks if mark in self._held]
        return min(whole) if whole else (len(self._held) - partial_match(self._held, tuple(self._state.marks)), None)

    def _pass(self, mark: str) -> None:
        self._take(len(mark))
        self._state = self._states[self._state.marks[mark]]
        self._after_mark, self._gap = True, ""

    def _take(self, count: int) -> str:
        """Cut `count` characters off the held text; return those that did not come from the tail."""
        text, self._held = self._held[self._known : count], self._held[count:]
        self._known = max(0, self._known - count)
        return text

    def _write(self, text: str, parts: dict[Part, str]) -> None:
        """Add `text` to the part it belongs to, without the blanks beside marks."""
        part = self._state.part
        if part is None:
            return
        if self._after_mark:
            text = text.lstrip(_BLANKS)
            if not text:
                return
            self._after_mark = False
            if part in self._written:
                text = "\n\n" + text
        if not text:
            return
        self._written.add(part)
        if part == "thought":
            text = self._gap + text
            self._gap = text[len(text.rstrip(_BLANKS)) :]
            text = text.rstrip(_BLANKS)
        parts[part] += text
