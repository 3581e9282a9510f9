"""A terminal without a window: what a person would see on the screen and by scrolling back."""

from __future__ import annotations

import io

import pyte
from rich.console import Console


class Emulator(io.TextIOBase):
    """Takes what a program writes, as a terminal of this size would."""

    def __init__(self, columns: int = 60, rows: int = 12) -> None:
        self.written = ""
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        # As a terminal device does with line ends.
        self._screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self._screen)

    def write(self, text: str) -> int:
        self.written += text
        self._stream.feed(text)
        return len(text)

    def isatty(self) -> bool:
        return True

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    def screen(self) -> str:
        """Return what is on the screen, without blank space at its edges."""
        return "\n".join(line.rstrip() for line in self._screen.display).strip("\n")

    def text(self) -> str:
        """Return what has ever been on the screen, from the first line on."""
        columns = range(self._screen.columns)
        above = ["".join(line[column].data for column in columns).rstrip() for line in self._screen.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self._screen.display)]).strip("\n")

    def styles(self, text: str) -> pyte.screens.Char:
        """Return the first character of `text` as it stands on the screen, with its colours."""
        row, column = next((r, line.index(text)) for r, line in enumerate(self._screen.display) if text in line)
        return self._screen.buffer[row][column]


def create_console(emulator: Emulator, columns: int = 60, rows: int = 12) -> Console:
    return Console(
        file=emulator, force_terminal=True, width=columns, height=rows, color_system="truecolor", highlight=False
    )
