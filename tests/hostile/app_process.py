"""The app and the server behind it, as processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue

import httpx

from tests.hostile.census import MARK


class AppProcess:
    """A running app; `log` is what it printed, `url` where its page is."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.log = process, list[str]()
        self._found: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        address = re.search(r"http://[\d.:]+", self._found.get())
        if address is None:
            raise RuntimeError(f"The app did not start.\n{''.join(self.log)}")
        self.url = address[0]

    def wait_until_ready(self) -> None:
        while httpx.get(f"{self.url}/health").status_code != 200:
            time.sleep(0.1)

    def census(self) -> dict[str, float]:
        """Return what lives in it now."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self._found.get(timeout=120).removeprefix(MARK))

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith((MARK, "The page is at")):
                self._found.put(line)
            else:
                self.log.append(line)
        self._found.put("")


@contextmanager
def run_app(*flags: str, environment: Mapping[str, str] | None = None) -> Iterator[AppProcess]:
    """Run app.py on a free port."""
    command = [sys.executable, "-u", "-m", "tests.hostile.census", "--port", "0", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}, **pipes) as process:
        try:
            yield AppProcess(process)
        finally:
            process.terminate()


class FaucetProcess:
    """The server behind the app; it can be killed, and started again at the same port."""

    def __init__(self, rate: float) -> None:
        self._rate, self.port = rate, 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.hostile.faucet", str(self.port), str(self._rate)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def run_faucet(rate: float) -> Iterator[FaucetProcess]:
    faucet = FaucetProcess(rate)
    try:
        yield faucet
    finally:
        faucet.kill()
