"""What `transformers chat` asks a server before the first message: POST /load_model, answered with progress.

The events are those that transformers.cli.chat reads: status "loading" with a stage and a progress,
then "ready" or "error".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import anyio

from chat.types import Engine, Status
from chat.web.fields import Fields, Name

POLL_S = 0.25


class LoadRequest(Fields):
    """The model that is to be loaded."""

    model: Name = ""


async def watch_loading(engine: Engine) -> AsyncIterator[Mapping[str, object]]:
    """Yield an event now and then until the model is ready or failed."""
    while (status := engine.status()).state == "loading":
        yield _loading(status)
        await anyio.sleep(POLL_S)
    yield {"status": "error", "message": str(status.error)} if status.error else {"status": "ready", "cached": True}


def _loading(status: Status) -> Mapping[str, object]:
    event = {"status": "loading", "stage": "download"}
    if status.progress is None or not status.progress.total:
        return event
    return event | {"progress": {"current": status.progress.done, "total": status.progress.total}}
