"""Messages from anywhere, put in order: one system text, then turns of a user message and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from chat.engine.reasoning import split
from chat.engine.thought_formats import ThoughtFormat
from chat.types import InvalidRequest, Message, Role


def split_turns(messages: Sequence[Message], thoughts: ThoughtFormat) -> tuple[list[Message], list[list[Message]]]:
    """Return the system message, if there is one, and the turns; messages that follow one of their own role join it.

    Earlier replies lose their thoughts, a last one keeps its own. Raises: InvalidRequest if there is no message.
    """
    if not messages:
        raise InvalidRequest("There is no message to answer. Send one.", "messages")
    plain = [_plain(message, thoughts) for message in messages[:-1]]
    plain.append(_plain_last(messages[-1], is_first=not plain))
    system = [message for message in plain if message["role"] == "system"]
    turns: list[list[Message]] = []
    for role, group in groupby((m for m in plain if m["role"] != "system"), key=lambda message: message["role"]):
        if role == "user" or not turns:
            turns.append([])
        turns[-1].append(_merge(list(group)))
    return [_merge(system)] if system else [], turns


def _plain(message: Message, thoughts: ThoughtFormat) -> Message:
    """Return the message with plain text and without a thought."""
    text = _flatten(message["content"])
    return {"role": message["role"], "content": split(thoughts, text)[1] if message["role"] == "assistant" else text}


def _plain_last(message: Message, *, is_first: bool) -> Message:
    """Return the last message with plain text: a reply may go on thinking, and instructions are to be answered."""
    role: Role = "user" if message["role"] == "system" and not is_first else message["role"]
    return {"role": role, "content": _flatten(message["content"]), "thought": message.get("thought", "")}


def _flatten(content: object) -> str:
    """Return the text of a content: a text, a list of texts or of blocks, one block, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _flatten(content.get("text"))
    return "".join(map(_flatten, content)) if isinstance(content, (list, tuple)) else ""


def _merge(messages: list[Message]) -> Message:
    """Return one message for several of the same role; blank ones leave no gap."""
    merged = messages[-1].copy()
    if len(messages) > 1:
        merged["content"] = "\n\n".join(m["content"] for m in messages if m["content"])
    return merged
