"""Stop texts: where a reply ends, also when the text arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Pass a text through up to the first stop text, holding back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Take more text; return what may be shown. Sets `matched` at a stop text, after which nothing follows."""
        if self.matched:
            return ""
        text = self._held + text
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            self.matched, self._held = True, ""
            return text[: min(starts)]
        end = len(text) - partial_match(text, self._stops)
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """Return what was held back and did not become a stop text."""
        held, self._held = self._held, ""
        return held


def partial_match(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that begins one of `marks` without being the whole of it."""
    longest = max((len(mark) for mark in marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(len(mark) > length and mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0
