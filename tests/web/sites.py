"""The page and the API on one server, as app.py serves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chat.settings import Settings
from chat.types import Engine
from chat.web.api import create_api
from chat.web.page import create_page
from tests.web.pages import free_port


@contextmanager
def serve_site(engine: Engine, **settings: object) -> Iterator[tuple[str, list]]:
    """Serve page and API on a free port; yield the address without a slash at its end, and the routes."""
    chosen = Settings(**settings)
    page = create_page(engine, chosen)
    try:
        app, url, _ = page.launch(
            server_port=free_port(),
            root_path=chosen.root_path,
            app_kwargs={"routes": create_api(engine, chosen).routes},
            quiet=True,
            prevent_thread_lock=True,
        )
        yield url.rstrip("/"), app.routes
    finally:
        page.close()
