from __future__ import annotations

import pytest

from tests.fakes import FakeEngine
from tests.web.pages import serve_page


@pytest.fixture(scope="module")
def served_page():
    """A scripted engine, and the address of its page."""
    engine = FakeEngine()
    with serve_page(engine) as url:
        yield engine, url


@pytest.fixture
def engine(served_page):
    """The engine behind the page, as new."""
    engine, _ = served_page
    engine.replies, engine.state = [["Hello", " there."]], None
    engine.prompts, engine.params, engine.closed = [], [], []
    return engine


@pytest.fixture
def url(served_page, engine):
    """The address of the page."""
    return served_page[1]
