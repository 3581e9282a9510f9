"""Pure rules over a history: every function returns a new list and changes none.

A history is a list of user and assistant messages as a person sees them. The system prompt is a
setting, not a message; `prompt` puts it in front for the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from chat.types import InvalidRequest, Message

History: TypeAlias = list[Message]


def ask(history: Sequence[Message], text: str) -> History:
    """Add a person's message. Raises: InvalidRequest if it is blank."""
    if not text.strip():
        raise InvalidRequest("The message is empty. Write something first.")
    return [*history, {"role": "user", "content": text}]


def reply(history: Sequence[Message], message: Message) -> History:
    """Put the assistant's message at the end, in place of one that is there already."""
    return [*_until_reply(history), message]


def retry(history: Sequence[Message]) -> History:
    """Drop the last reply, so that its question is answered again. Raises: InvalidRequest if there is none."""
    kept = _until_reply(history)
    if not kept:
        raise InvalidRequest("There is nothing to retry yet. Send a message first.")
    return kept


def undo(history: Sequence[Message]) -> tuple[History, str]:
    """Drop the last question with its reply; return what is left and the question's text."""
    kept = _until_reply(history)
    if not kept:
        return [], ""
    return kept[:-1], kept[-1]["content"]


def edit(history: Sequence[Message], index: int, text: str) -> History:
    """Give message `index` a new text and drop what follows. Raises: InvalidRequest if it is blank."""
    if not text.strip():
        raise InvalidRequest("The message is empty. Write something first.")
    if not 0 <= index < len(history):
        raise InvalidRequest("That message is no longer there. Reload the page.")
    return [*history[:index], {"role": history[index]["role"], "content": text}]


def prompt(history: Sequence[Message], system_prompt: str = "") -> list[Message]:
    """Return what the engine reads: the system prompt, if any, then roles and contents alone.

    A last reply that was cut inside its thought keeps the thought, so that it can be continued.
    """
    messages: list[Message] = [{"role": m["role"], "content": m["content"]} for m in history]
    if messages and history[-1]["role"] == "assistant" and history[-1].get("thought"):
        messages[-1]["thought"] = history[-1]["thought"]
    return [{"role": "system", "content": system_prompt}, *messages] if system_prompt.strip() else messages


def can_continue(history: Sequence[Message]) -> bool:
    """Tell whether the last message is a reply, the only kind that can go on."""
    return bool(history) and history[-1]["role"] == "assistant"


def _until_reply(history: Sequence[Message]) -> History:
    """Return the history without its last message if that is the assistant's."""
    return list(history[:-1] if can_continue(history) else history)
