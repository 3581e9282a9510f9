"""Messages in, chunks out."""

from __future__ import annotations

from chat.engine.starting import Report, StartingEngine
from chat.settings import EngineSettings
from chat.types import Engine


def create_engine(settings: EngineSettings) -> Engine:
    """Return an engine at once; its model loads in the background, or runs on a server."""
    if settings.engine == "hub" or settings.engine.startswith("http"):
        from chat.engine.remote import RemoteEngine, find_server

        return RemoteEngine(find_server(settings), settings)

    def start(report: Report) -> Engine:
        # torch takes seconds to import, so it waits until the page is up.
        from chat.engine.direct import DirectEngine
        from chat.engine.loading import load_model

        return DirectEngine(load_model(settings, report), settings)

    return StartingEngine(start)
