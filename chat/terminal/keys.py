"""The keys pressed while a reply streams."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class StopKey:
    """Ctrl-C, as far as it was pressed."""

    # No threading.Event: a second press while the first one sets it would wait for its lock for ever.
    pressed: bool = False

    def press(self, *_: object) -> None:
        """Take note of a signal."""
        self.pressed = True


@contextmanager
def stop_key() -> Iterator[StopKey]:
    """Note Ctrl-C while the block runs, instead of raising KeyboardInterrupt somewhere in it."""
    key = StopKey()
    before = signal.signal(signal.SIGINT, key.press)
    try:
        yield key
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def hidden_keys() -> Iterator[None]:
    """Keep what is typed while the block runs off the screen; the next prompt reads it."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    quiet = [*before]
    # NOFLSH: Ctrl-C would throw away what was typed, and with it what is still to be shown.
    quiet[3] = (quiet[3] | termios.NOFLSH) & ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
