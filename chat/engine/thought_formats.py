"""How families of models mark their thoughts: small tables of marks and of what each leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["thought", "answer"]


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
    """A table of states; a reply begins in the state "start".

    `opening` and `closing` are what the model itself writes before and behind a thought. `tokens` are
    the special tokens that belong to the marks, so must not be hidden from the splitter.
    """

    opening: str
    closing: str
    states: Mapping[str, State]
    tokens: frozenset[str] = frozenset()

    @property
    def marks(self) -> frozenset[str]:
        """Every mark of the table."""
        return frozenset(mark for state in self.states.values() for mark in state.marks)


def tagged(opening: str, closing: str, *others: tuple[str, str], anywhere: bool = False) -> ThoughtFormat:
    """Return a format of tags: a model's own pair, with its blanks, and other pairs that are read too.

    A thought opens only where the reply starts, because a tag further on is what the answer speaks of;
    unless `anywhere`, for tags that are special tokens and so can mean nothing else.
    """
    pairs = dict([*others, (opening.strip(), closing.strip())])
    opens = {mark: f"behind {mark}" for mark in pairs}
    closes = dict.fromkeys(pairs.values(), "answer")
    states = {opens[mark]: State("thought", {end: "answer"}) for mark, end in pairs.items()}
    states["start"] = State("answer", opens, otherwise="answer")
    states["answer"] = State("answer", {**opens, **closes} if anywhere else {})
    return ThoughtFormat(opening, closing, states)


COMMON_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))

TAGGED = tagged("<think>\n", "\n</think>\n\n", *COMMON_TAGS)
"""What a model that says nothing of its marks is read by."""

RARE_TAGS = (
    ("[THINK]", "[/THINK]"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("◁think▷", "◁/think▷"),
    ("<thought>\n", "\n</thought>\n\n"),
    ("<reasoning>\n", "\n</reasoning>\n"),
    ("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"),
)
"""Tags of Magistral, Apertus, Kimi-VL, EXAONE Deep, Reka, Apriel: their templates write no thoughts to learn from."""

_HEADER = {"<|channel|>": "channel", "<|message|>": "answer"}
_MESSAGE_END = {
    "<|end|>": "next",
    "<|return|>": "next",
    "<|call|>": "next",
    "<|start|>": "role",
    "<|channel|>": "channel",
}

HARMONY = ThoughtFormat(
    opening="<|channel|>analysis<|message|>",
    closing="<|end|><|start|>assistant<|channel|>final<|message|>",
    states={
        "start": State("answer", _HEADER, otherwise="answer"),
        "channel": State(None, {"analysis": "aside", "commentary": "aside", "<|message|>": "answer"}),
        # Commentary is for tools and plans, so it is folded away with the thought.
        "aside": State(None, {"<|message|>": "thought"}),
        "thought": State("thought", _MESSAGE_END),
        "answer": State("answer", _MESSAGE_END),
        "next": State("answer", {"<|start|>": "role", **_HEADER}, otherwise="answer"),
        "role": State(None, {"assistant": "start", **_HEADER}),
    },
)
"""gpt-oss: messages of a role, a channel's name and a text, the last in the channel "final"."""

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
"""Gemma 4: a channel with the name "thought", the answer outside of any."""

_COHERE_START = {"<|START_THINKING|>": "thought", "<|START_RESPONSE|>": "answer", "<|START_TEXT|>": "answer"}

COHERE = ThoughtFormat(
    opening="<|START_THINKING|>",
    closing="<|END_THINKING|><|START_RESPONSE|>",
    states={
        "start": State("answer", _COHERE_START, otherwise="answer"),
        "thought": State("thought", {"<|END_THINKING|>": "answer"}),
        "answer": State("answer", {**_COHERE_START, "<|END_RESPONSE|>": "answer", "<|END_TEXT|>": "answer"}),
    },
)
"""Command R7B, Command A: a start and an end for the thought, and for the answer."""

FAMILIES = {"<|channel|>": HARMONY, "<|channel>": GEMMA, "<|START_THINKING|>": COHERE}
"""Formats by a token that no other family has."""
