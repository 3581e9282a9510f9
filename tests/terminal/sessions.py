"""A conversation with a scripted engine and an emulated terminal."""

from __future__ import annotations

from chat.terminal.screen import Screen
from chat.terminal.session import Session
from chat.types import GenerationParams
from tests.emulator import Emulator, create_console
from tests.fakes import FakeEngine


def create_session(engine: FakeEngine, *lines: str) -> tuple[Session, Emulator]:
    """Return a session whose person writes `lines` where a command asks for one."""
    emulator, written = Emulator(80, 40), iter(lines)
    screen = Screen(create_console(emulator, 80, 40))
    return Session(engine, engine.info, screen, lambda text: next(written), "", GenerationParams()), emulator
