"""Errors as the page shows them: toasts in its corner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import gradio as gr

from chat.types import ChatError


@contextmanager
def toasts() -> Iterator[None]:
    """Turn an error into a toast. A toast is HTML, and an error's text may hold what a person typed."""
    try:
        yield
    except ChatError as error:
        raise gr.Error(escape(str(error), quote=False), print_exception=False) from None
    except Exception as error:
        raise gr.Error("Something went wrong. The log of the server says what. Please try again.") from error
