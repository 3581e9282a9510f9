"""A program in a pseudo-terminal, and what a person sees of it."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from tests.emulator import Emulator


class PseudoTerminal:
    """Runs a program; reading is only done while something is waited for."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], columns: int = 80, rows: int = 24) -> None:
        self.emulator = Emulator(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._device, inner = os.openpty()
        self.resize(columns, rows)

        def make_it_the_controlling_terminal() -> None:
            fcntl.ioctl(inner, termios.TIOCSCTTY, 0)

        self._process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=make_it_the_controlling_terminal,
        )
        os.close(inner)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._process.kill()
        self._process.wait()
        os.close(self._device)

    def send(self, keys: str) -> None:
        os.write(self._device, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.emulator.resize(columns, rows)

    def wait_until(self, seen: Callable[[str], bool], within_s: float = 60) -> str:
        """Read until `seen` is true of the screen, and return it."""
        deadline = time.monotonic() + within_s
        while not seen(self.emulator.screen()):
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                raise AssertionError(f"Not seen; the screen:\n{self.emulator.screen()}")
        return self.emulator.screen()

    def wait_for(self, text: str, within_s: float = 60) -> str:
        return self.wait_until(lambda screen: text in screen, within_s)

    def wait_for_end(self, within_s: float = 60) -> int:
        """Read until the program has ended, and return its status."""
        deadline = time.monotonic() + within_s
        while self._read(deadline - time.monotonic()):
            pass
        return self._process.wait(max(deadline - time.monotonic(), 0.1))

    def interrupt(self) -> None:
        """Send the signal that another program would send."""
        self._process.send_signal(signal.SIGINT)

    def _read(self, within_s: float) -> bool:
        """Feed the emulator what has come; return False at the end or when nothing came in time."""
        if not select.select([self._device], [], [], max(within_s, 0))[0]:
            return False
        try:
            data = os.read(self._device, 65536)
        except OSError:
            return False
        self.emulator.write(self._decoder.decode(data))
        return bool(data)
