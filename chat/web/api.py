"""The HTTP API: the engine over plain text and in OpenAI's shapes, on the page's own server."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from chat.settings import Settings
from chat.types import Engine, Status


def create_api(engine: Engine, settings: Settings) -> APIRouter:
    """Return the routes that answer with `engine`."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> JSONResponse:
        return _health(engine.status())

    return router


def _health(status: Status) -> JSONResponse:
    body = {"state": status.state, "model": status.info.name if status.info else None}
    return JSONResponse(body, 200 if status.state == "ready" else 503)
