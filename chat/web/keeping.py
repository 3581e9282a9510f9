"""The conversation, kept in the browser's tab: a reload finds it again, and another tab does not."""

from __future__ import annotations

from typing import Any

import gradio as gr
from pydantic import TypeAdapter, ValidationError

from chat.conversation import History
from chat.web import view

READ = "() => sessionStorage.getItem('conversation')"
WRITE = "(text) => sessionStorage.setItem('conversation', text)"

_HISTORY = TypeAdapter(History)


def keep(history: History) -> str:
    """Return what the browser keeps of a conversation."""
    return _HISTORY.dump_json(history).decode()


def restore(kept: str | None) -> tuple[Any, Any]:
    """Return the conversation that a browser kept, and how it is shown, if it is one."""
    try:
        history = _HISTORY.validate_json(kept or "")
    except ValidationError:
        return gr.skip(), gr.skip()
    return history, view.show(history)
