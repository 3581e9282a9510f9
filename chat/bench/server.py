"""The app itself, started as a person starts it, in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from pydantic import SecretStr

from chat.settings import EngineSettings
from chat.types import EngineUnavailable

_APP = Path(__file__).parents[2] / "app.py"


@contextmanager
def serve(settings: EngineSettings) -> Iterator[tuple[str, int]]:
    """Run the app with these settings; yield its address and its process id once it can answer.

    Raises: EngineUnavailable.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(  # noqa: S603  # the app and the Python that are running here
            [sys.executable, str(_APP)],
            env=_environment(settings) | {"CHAT_HOST": "127.0.0.1", "CHAT_PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=log,
            # Ctrl-C is for the bench alone, which then ends the server.
            start_new_session=True,
        )
        try:
            if not _becomes_ready(f"http://127.0.0.1:{port}/health", process):
                log.seek(0)
                raise EngineUnavailable(f"The app did not start: {log.read()[-1000:]}")
            yield f"http://127.0.0.1:{port}/v1", process.pid
        finally:
            process.terminate()
            process.wait()


def _environment(settings: EngineSettings) -> dict[str, str]:
    own = {name for name in os.environ if name.startswith("CHAT_")}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    for name in EngineSettings.model_fields:
        value = getattr(settings, name)
        if value not in (None, "", ()):
            environment[f"CHAT_{name.upper()}"] = _to_text(value)
    return environment


def _to_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, tuple) else str(value)


def _becomes_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the model is loaded; tell whether it is, or the process has ended."""
    while process.poll() is None:
        try:
            state = httpx2.get(url, timeout=5).json()["status"]
        except httpx2.TransportError:
            state = "not listening yet"
        if state in ("ready", "failed"):
            return bool(state == "ready")
        time.sleep(0.2)
    return False
