"""Messages in, chunks out."""

from __future__ import annotations

from chat.engine.starting import Report, StartingEngine
from chat.settings import EngineSettings
from chat.space import on_zerogpu
from chat.types import Engine


def create_engine(settings: EngineSettings) -> Engine:
    """Return an engine at once; its model loads in the background, or runs on a server.

    On ZeroGPU it returns with the model loaded, and must be called on the main thread before the launch.
    """
    if settings.is_remote:
        from chat.engine.remote import RemoteEngine, find_server

        return RemoteEngine(find_server(settings), settings)

    if on_zerogpu():
        from chat.engine.zerogpu import create_zerogpu_engine

        return create_zerogpu_engine(settings)

    def start(report: Report) -> Engine:
        # torch takes seconds to import, so it waits until the page is up.
        from chat.engine.kinds import create_local_engine
        from chat.engine.loading import load_model

        return create_local_engine(load_model(settings, report), settings)

    return StartingEngine(start)
