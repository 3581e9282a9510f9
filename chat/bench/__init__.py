"""How fast a model is on this machine: `python -m chat bench`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from chat.bench.settings import BenchSettings
from chat.settings import read_settings
from chat.types import ChatError


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and show one table; Ctrl-C shows what is there. Return the exit status."""
    settings = read_settings(BenchSettings, "python -m chat bench", arguments)
    try:
        _check_plot(settings)
        # torch takes seconds to import, so --help and mistakes are answered first.
        from chat.bench.run import run

        run(settings)
    except ChatError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _check_plot(settings: BenchSettings) -> None:
    """Raise ChatError now rather than after all the measuring."""
    if settings.plot and importlib.util.find_spec("matplotlib") is None:
        raise ChatError("A picture needs matplotlib. Install it with: pip install matplotlib")
