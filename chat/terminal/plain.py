"""One reply as plain text or JSON on standard output, for people and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from chat.captions import progress_caption
from chat.reply import Reply
from chat.terminal.keys import stop_key
from chat.terminal.region import Region, lay_out
from chat.terminal.visible import visible
from chat.types import Chunk


def write_text(stream: Generator[Chunk, None, None]) -> None:
    """Write the answer while it streams, exact unless it goes to a terminal. Raises: ChatError, KeyboardInterrupt."""
    reply = Reply()
    try:
        _follow(stream, reply, _write_visible if sys.stdout.isatty() else _write)
    finally:
        if reply.content and not reply.content.endswith("\n"):
            _write("\n")


def write_json(stream: Generator[Chunk, None, None]) -> None:
    """Write one object with the whole reply. Raises: ChatError, KeyboardInterrupt."""
    reply = Reply()
    _follow(stream, reply, lambda _: None)
    usage = asdict(reply.usage) if reply.usage else None
    fields = {"reply": reply.content, "thought": reply.thought, "finish_reason": reply.finish_reason, "usage": usage}
    _write(json.dumps(fields, ensure_ascii=False) + "\n")


def _follow(stream: Generator[Chunk, None, None], reply: Reply, write: Callable[[str], None]) -> None:
    """Add the chunks to `reply` and write their text; Ctrl-C closes the stream and raises KeyboardInterrupt.

    Until the answer begins, a person at the terminal sees on standard error what the engine does.
    """
    console = Console(stderr=True)
    region = Region(console)
    try:
        with stop_key() as stop, closing(stream):
            for chunk in stream:
                reply.add(chunk)
                if console.is_terminal:
                    caption = "Thinking" if reply.thought else progress_caption(reply.progress)
                    region.draw([] if reply.content else lay_out(console, Text(visible(caption), style="dim")))
                write(chunk.text)
                if stop.pressed:
                    raise KeyboardInterrupt
    finally:
        region.draw([])


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_visible(text: str) -> None:
    _write(visible(text))
