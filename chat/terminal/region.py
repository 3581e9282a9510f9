"""The growing end of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, SegmentLines

NARROWEST = 20
"""Narrower terminals fold what is laid out for this many columns."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line laid out for the terminal: its text with colours, and how many columns it takes."""

    text: str
    cells: int

    def rows(self, width: int) -> int:
        """Return how many rows of a terminal of this width the line takes."""
        return max(1, -(-self.cells // width))


def lay_out(console: Console, content: RenderableType) -> list[Line]:
    """Lay `content` out for the console's width, without blank space around it."""
    options = console.options.update(width=max(console.width, NARROWEST), height=None)
    lines = [_trimmed(line) for line in console.render_lines(content, options, pad=False)]
    filled = [index for index, line in enumerate(lines) if line]
    lines = lines[filled[0] : filled[-1] + 1] if filled else []
    with console.capture() as capture:
        console.print(SegmentLines(lines, new_lines=True), end="", crop=False)
    return [
        Line(text, Segment.get_line_length(line)) for text, line in zip(capture.get().split("\n"), lines, strict=False)
    ]


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Return a line without the blanks that fill it up to the width."""
    cells = cell_len("".join(segment.text for segment in line).rstrip())
    return Segment.adjust_line_length(line, cells, pad=False) if cells else []


def _common(old: Sequence[Line], new: Sequence[Line]) -> int:
    """Count the leading lines that are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(old), len(new)))


class Region:
    """Lines at the end of the screen that can still change.

    A new drawing rewrites the screen from the first line that differs, in a single write, so what stays
    the same never flickers. Lines that left the screen at its top cannot be rewritten any more; if one of
    them changes, the lines from there on are printed once more at the end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Line] = []
        self._outdated_from: int | None = None

    def draw(self, lines: Sequence[Line]) -> None:
        """Show `lines` in place of those that were drawn before."""
        if list(lines) == self._lines:
            return
        if not self._console.is_dumb_terminal:
            self._rewrite(lines)
        self._lines = list(lines)

    def finish(self) -> None:
        """Leave what is drawn on the screen for good; what is drawn next comes below it."""
        # A dumb terminal cannot move its cursor, so nothing was written there yet.
        again = 0 if self._console.is_dumb_terminal else self._outdated_from
        text = "" if again is None else "".join(f"\n{line.text}" for line in self._lines[again:])
        if self._lines:
            self._write(f"{text}\n")
        self._lines, self._outdated_from = [], None

    def _rewrite(self, lines: Sequence[Line]) -> None:
        same = _common(self._lines, lines)
        reachable = self._first_reachable()
        if same < reachable:
            self._outdated_from = same if self._outdated_from is None else min(same, self._outdated_from)
        # The cursor has to end behind the last line, so that one is written again when those below it go.
        first = max(reachable, min(same, len(lines) - 1))
        self._write(self._go_to(first) + "\n".join(line.text for line in lines[first:]))

    def _first_reachable(self) -> int:
        """Return the first drawn line that has not left the screen."""
        rows, width, height = 0, self._console.width, self._console.height
        for index in range(len(self._lines), 0, -1):
            rows += self._lines[index - 1].rows(width)
            if rows > height:
                return index
        return 0

    def _go_to(self, first: int) -> str:
        """Return what moves the cursor to the start of line `first` and clears the screen from there."""
        if first >= len(self._lines):
            return "\n" if self._lines else ""
        up = sum(line.rows(self._console.width) for line in self._lines[first:]) - 1
        return (f"\x1b[{up}A" if up else "") + "\r\x1b[J"

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
