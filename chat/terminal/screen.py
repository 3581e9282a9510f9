"""What a conversation shows."""

from __future__ import annotations

import time
from collections.abc import Generator

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from chat.captions import left_out_caption, progress_caption, stopped_caption, usage_caption
from chat.reply import Reply
from chat.terminal.keys import hidden_keys
from chat.terminal.region import Region, lay_out
from chat.terminal.view import ReplyView, TextView
from chat.terminal.visible import visible
from chat.types import Chunk, Engine, Status


class Screen:
    """The terminal; a text from outside loses its control characters on the way to it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # rich's own colours for these do not suit a light terminal.
        console.push_theme(Theme({"markdown.code": "cyan", "markdown.block_quote": "none"}))

    def say(self, text: str, style: str = "") -> None:
        """Print a text as it stands, without Markdown."""
        self._console.print(Text(visible(text), style=style))

    def fail(self, error: Exception) -> None:
        """Print what went wrong."""
        self.say(str(error), "red")

    def clear(self) -> None:
        """Empty the screen."""
        self._console.clear()

    def wait_for(self, engine: Engine) -> Status:
        """Show the progress of loading until it has ended; return how."""
        region = Region(self._console)
        try:
            with hidden_keys():
                while (status := engine.status()).state == "loading":
                    caption = visible(progress_caption(status.progress))
                    region.draw(lay_out(self._console, Text(caption, style="dim")))
                    time.sleep(0.1)
        finally:
            region.draw([])
        return status

    def follow(self, stream: Generator[Chunk, None, None], reply: Reply) -> None:
        """Show `reply` while the stream adds to it. Raises: ChatError."""
        self.say("")
        ReplyView(self._console).follow(stream, reply)

    def grow(self, text: str, stream: Generator[Chunk, None, None], reply: Reply) -> None:
        """Show `text`, and behind it `reply` while the stream adds to it. Raises: ChatError."""
        self.say("")
        TextView(self._console, text).follow(stream, reply)

    def show(self, reply: Reply) -> None:
        """Show a reply that has ended."""
        self.say("")
        ReplyView(self._console).show(reply)

    def account(self, reply: Reply, window: int, go_on: str = "/continue") -> None:
        """Say what a reply cost and, unless it came to its own end, why it ended and that `go_on` goes on."""
        if reply.usage:
            self.say(usage_caption(reply.usage, window), "dim")
        if reply.usage and reply.usage.messages_left_out:
            self.say(left_out_caption(reply.usage.messages_left_out), "yellow")
        if reply.finish_reason != "stop":
            is_full = reply.finish_reason == "length"
            ended = "Stopped at the limit of tokens" if is_full else stopped_caption(reply.seconds)
            self.say(f"{ended}; {go_on} goes on.", "yellow")
        self.say("")
