"""Messages in, chunks out."""

from __future__ import annotations

from chat.engine.starting import Report, StartingEngine
from chat.settings import EngineSettings
from chat.types import Engine


def create_engine(settings: EngineSettings) -> Engine:
    """Return an engine at once; its model loads in the background."""

    def start(report: Report) -> Engine:
        # torch takes seconds to import, so it waits until the page is up.
        from chat.engine.direct import DirectEngine
        from chat.engine.loading import load_model

        return DirectEngine(load_model(settings, report), settings)

    return StartingEngine(start)
