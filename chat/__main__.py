"""`python -m chat`: talk in the terminal. `python -m chat bench` measures the model, `password` makes an account."""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def main() -> int:
    """Run the program that the first argument names, or else the chat; return the exit status."""
    is_named = sys.argv[1:2] in (["bench"], ["password"])
    name, arguments = (sys.argv[1], sys.argv[2:]) if is_named else ("cli", sys.argv[1:])
    try:
        status: int = import_module(f"chat.{name}").main(arguments)
    except KeyboardInterrupt:
        # Shells expect a program to die of the signal. And Python would take itself apart under a thread
        # that still loads the model, which crashes.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        status = 128 + signal.SIGINT
    return status


if __name__ == "__main__":
    sys.exit(main())
