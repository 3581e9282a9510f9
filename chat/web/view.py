"""What a visitor sees: a history as the chat component's messages, a reply's state as one line of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from chat.captions import left_out_caption, model_caption, progress_caption, stopped_caption, usage_caption
from chat.reply import Reply
from chat.types import ChatError, Message, Status
from chat.web.guard import guard

MATH = ("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)")
"""What marks a formula. A single $ does not: it is money."""

Growing: TypeAlias = dict[str, Any]
"""A message that is being written, in the chat component's own form. Of a dict Gradio sends only what is new."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A message that stays as it is. Not a dict, which Gradio would walk through at each piece of a reply."""

    role: str
    content: list[dict[str, str]]
    metadata: dict[str, str] | None = None
    options: list[dict[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """What the browser leaves as it is. For gr.skip(), which says the same, Gradio would make a new component."""

    __type__: str = "update"


Shown: TypeAlias = Sequence[Settled | Growing]
"""A conversation as the chat component sends it to the browser."""


def show(history: Sequence[Message]) -> list[Settled]:
    """Return a settled history; a cut last reply offers to go on."""
    shown = [part for message in history for part in _show_message(message)]
    if shown and history[-1].get("finish_reason") in ("length", "cancelled"):
        shown[-1]["options"] = [{"label": "Continue", "value": "continue"}]
    return [Settled(**part) for part in shown]


def show_growing(message: Message) -> list[Growing]:
    """Return a reply that is still being written; without an answer yet, its thought is pending."""
    return _show_message(message, pending=not message["content"])


def message_index(history: Sequence[Message], shown_index: int) -> int:
    """Return the place in the history of what is shown at `shown_index`: a thought is shown as a message of its own."""
    places = [place for place, message in enumerate(history) for _ in _show_message(message)]
    return places[shown_index]


def _show_message(message: Message, pending: bool = False) -> list[Growing]:
    answer = _show_text(message["role"], message["content"])
    if not message.get("thought"):
        return [answer]
    seconds = message.get("thought_s", 0.0)
    thought = _show_text(message["role"], message["thought"])
    if pending:
        return [thought | {"metadata": {"title": f"Thinking for {seconds:.0f} s", "status": "pending"}}]
    thought["metadata"] = {"title": f"Thought for {seconds:.1f} s", "status": "done"}
    return [thought, answer] if message["content"] else [thought]


def _show_text(role: str, text: str) -> Growing:
    return {"role": role, "content": [{"type": "text", "text": guard(text)}]}


def waiting_line(status: Status) -> str:
    """Say what the engine is, or what it does instead of being ready."""
    if status.info:
        return _line("idle", model_caption(status.info))
    if status.error:
        return _line("failed", str(status.error))
    return _line("loading", progress_caption(status.progress))


def growing_line(reply: Reply) -> str:
    """Say what is being done for a reply that has not ended."""
    if reply.progress or not (reply.content or reply.thought):
        return _line("busy", progress_caption(reply.progress))
    return _line("busy", "Writing" if reply.content else "Thinking")


def ended_line(reply: Reply, window: int) -> str:
    """Say how a reply ended and what it cost."""
    usage = reply.usage
    parts = [usage_caption(usage, window)] if usage else []
    if usage and usage.cached_tokens:
        parts.append(f"{usage.cached_tokens:,} cached")
    if reply.finish_reason == "length":
        parts.append("Cut at the longest reply allowed")
    elif reply.finish_reason != "stop":
        parts.append(stopped_caption(reply.seconds))
    if usage and usage.messages_left_out:
        parts.append(left_out_caption(usage.messages_left_out))
    return _line("ended", " · ".join(parts))


def failed_line(error: Exception) -> str:
    """Say why there is no reply, or no more of it."""
    return _line("failed", str(error) if isinstance(error, ChatError) else "The reply failed.")


def is_about_reply(line: str) -> bool:
    """Tell whether a line says how a reply grows or how it ended, which stays until there is another."""
    return line.startswith(('<span class="busy"', '<span class="ended"'))


def heading(title: str) -> str:
    """Return the page's heading."""
    return f"<h1>{escape(title or 'Chat')}</h1>"


def _line(state: str, text: str) -> str:
    # The style sheet goes by the state: only a busy line brings the stop button out.
    return f'<span class="{state}">{escape(text)}</span>'
