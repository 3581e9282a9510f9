"""`python -m chat password NAME`: make a line for the file of --auth-file."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from chat.accounts import hash_password


def main(arguments: Sequence[str]) -> int:
    """Ask for a password twice, or read it from a pipe; print the account's line. Return the exit status."""
    parser = ArgumentParser("python -m chat password", description="Print an account, a line of the --auth-file.")
    parser.add_argument("name", help="What the person types as the name.")
    name: str = parser.parse_args(arguments).name
    if not name.strip() or ":" in name or name.startswith("#"):
        parser.error("A name is not empty, has no colon, and does not begin with #.")
    password = _ask() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        parser.error("The password is empty, or was not the same twice.")
    sys.stdout.write(f"{name.strip()}:{hash_password(password)}\n")
    return 0


def _ask() -> str:
    """Ask on the terminal itself, so that the output can go into a file; return "" if the two differ."""
    password = getpass.getpass()
    return password if getpass.getpass("Again: ") == password else ""
