"""`python -m chat`: talk in the terminal; `python -m chat bench`: measure how fast the model is here."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> int:
    """Run the program that the first argument names; without one, the chat."""
    name, arguments = ("bench", sys.argv[2:]) if sys.argv[1:2] == ["bench"] else ("cli", sys.argv[1:])
    status: int = import_module(f"chat.{name}").main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
