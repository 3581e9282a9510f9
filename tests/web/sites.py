"""The page and the API on one server, as app.py serves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.routing import BaseRoute

from chat.settings import Settings
from chat.types import Engine
from chat.web.api import create_api
from chat.web.limits import Limits
from chat.web.page import create_page
from tests.web.pages import free_port


def api_routes(engine: Engine, **settings: object) -> list[BaseRoute]:
    """Return the API's routes, without a page beside them."""
    chosen = Settings(**settings)
    return create_api(engine, chosen, Limits(chosen)).routes


@contextmanager
def serve_site(engine: Engine, **settings: object) -> Iterator[tuple[str, list]]:
    """Serve page and API on a free port; yield the address without a slash at its end, and the routes."""
    chosen = Settings(**settings)
    limits = Limits(chosen)
    page = create_page(engine, chosen, limits)
    try:
        app, url, _ = page.launch(
            server_port=free_port(),
            root_path=chosen.root_path,
            app_kwargs={"routes": create_api(engine, chosen, limits).routes},
            quiet=True,
            prevent_thread_lock=True,
        )
        yield url.rstrip("/"), app.routes
    finally:
        page.close()
