"""A reply on the screen."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from rich.console import Console
from rich.text import Text

from chat.captions import progress_caption
from chat.reply import Reply
from chat.terminal.keys import hidden_keys, stop_key
from chat.terminal.markdown import GrowingMarkdown
from chat.terminal.region import Line, Region, lay_out
from chat.terminal.visible import visible
from chat.types import Chunk

FRAME_S = 1 / 15
"""Shortest time between two drawings."""
SHARE = 4
"""A drawing is followed by a pause of this many times what it took, so that most of the time is the model's."""


class ReplyView:
    """Shows one reply: its thought dimmed, its answer as Markdown, and while both are empty what the engine does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._region = Region(console)
        self._thought, self._answer = GrowingMarkdown(console, "dim italic"), GrowingMarkdown(console)

    def follow(self, stream: Generator[Chunk, None, None], reply: Reply) -> None:
        """Add every chunk to `reply` and show it; Ctrl-C stops the stream. Raises: ChatError."""
        due = 0.0
        with stop_key() as stop, hidden_keys(), closing(stream):
            try:
                for chunk in stream:
                    reply.add(chunk)
                    if stop.pressed:
                        break
                    if time.monotonic() >= due:
                        due = self._draw(reply)
            finally:
                self.show(reply)

    def show(self, reply: Reply) -> None:
        """Show a reply that has ended."""
        self._region.draw(self._lines(reply))
        self._region.finish()

    def _draw(self, reply: Reply) -> float:
        """Draw the reply as it is now; return when the next drawing is due."""
        started = time.monotonic()
        caption = "" if reply.content or reply.thought else progress_caption(reply.progress)
        self._region.draw([*self._lines(reply), *self._dimmed(caption)])
        ended = time.monotonic()
        return max(started + FRAME_S, ended + SHARE * (ended - started))

    def _lines(self, reply: Reply) -> list[Line]:
        thought = self._thought.lines(visible(reply.thought)) if reply.thought else []
        answer = self._answer.lines(visible(reply.content))
        if thought and answer:
            return [*thought, *self._dimmed(f"Thought for {reply.thought_s:.1f} s"), Line("", 0), *answer]
        return thought or answer

    def _dimmed(self, text: str) -> list[Line]:
        return lay_out(self._console, Text(text, style="dim"))


class TextView(ReplyView):
    """Shows a text that grows as it stands, without Markdown; dimmed is what it began with."""

    def __init__(self, console: Console, begun: str) -> None:
        super().__init__(console)
        self._begun = begun

    def _lines(self, reply: Reply) -> list[Line]:
        return lay_out(self._console, Text.assemble((visible(self._begun), "dim"), visible(reply.content)))
