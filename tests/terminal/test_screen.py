from __future__ import annotations

from dataclasses import dataclass, field

from chat.terminal.screen import Screen
from chat.types import ModelLoadError, Progress, Status
from tests.emulator import Emulator, create_console
from tests.fakes import INFO, FakeEngine

READY = Status("ready", info=INFO)


@dataclass
class LoadingEngine(FakeEngine):
    """Goes through `states`, one for each time it is asked."""

    states: list[Status] = field(default_factory=list)

    def status(self) -> Status:
        return self.states.pop(0)


def test_loading_shows_its_progress_and_leaves_no_trace():
    emulator = Emulator()
    loading = [Status("loading", progress=Progress("loading", done, 2, "Loading the weights")) for done in (0, 1, 2)]
    assert Screen(create_console(emulator)).wait_for(LoadingEngine(states=[*loading, READY])) == READY
    assert "Loading the weights 0%" in emulator.written
    assert "Loading the weights 50%" in emulator.written
    assert emulator.screen() == ""


def test_a_failure_is_told_without_control_characters():
    emulator = Emulator()
    Screen(create_console(emulator)).fail(ModelLoadError("No model [bold]\x1b]0;x\x07[/bold]."))
    assert emulator.screen() == "No model [bold]␛]0;x␇[/bold]."
    assert "\x07" not in emulator.written
