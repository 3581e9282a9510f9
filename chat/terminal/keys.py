"""The keys pressed while a reply streams."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_key() -> Iterator[threading.Event]:
    """Set the event at Ctrl-C while the block runs, instead of raising KeyboardInterrupt somewhere in it."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
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
