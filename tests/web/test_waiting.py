"""Pages that are open before there is a model, or while its server is away."""

from __future__ import annotations

from contextlib import closing

import httpx
import pytest
from gradio_client import Client
from playwright.sync_api import expect

from chat.engine.remote import RemoteEngine, Server
from chat.engine.starting import StartingEngine
from chat.settings import Settings
from chat.types import ModelNotFound, Progress, Status
from tests.fakes import FakeEngine
from tests.upstream import Upstream
from tests.web.pages import Visitor, free_port, serve_page
from tests.web.sites import serve_site

LOADING = Status("loading", progress=Progress("loading", 42, 100, "Downloading"))
PAGES = 40  # more than Gradio runs events at once


def open_page(http: httpx.Client, session: str) -> None:
    """Ask for what a browser asks for when it has loaded the page."""
    for number, event in enumerate(http.get("config").json()["dependencies"]):
        if any(name == "load" for _, name in event["targets"]):
            route = "queue/join" if event["queue"] else "run/predict"
            body = {"fn_index": number, "session_hash": session, "data": [""] * len(event["inputs"])}
            http.post(f"gradio_api/{route}", json=body).raise_for_status()


def test_however_many_pages_wait_for_the_model_another_event_gets_through():
    engine = FakeEngine()
    engine.state = LOADING
    with serve_page(engine, queue_size=1) as url, httpx.Client(base_url=url, timeout=60) as http:
        for number in range(PAGES):
            open_page(http, f"page{number}")
        client = Client(url, verbose=False, analytics_enabled=False)
        assert client.submit("Hi", api_name="/chat").result(timeout=120) == "Hello there."


@pytest.fixture
def visit(browser):
    contexts = []

    def visit(url: str) -> Visitor:
        contexts.append(browser.new_context())
        return Visitor(contexts[-1].new_page(), url)

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def early(visit):
    """A page that was opened before its server; its address, its visitor, and the server's port."""
    port = free_port()
    engine = RemoteEngine(Server(f"http://127.0.0.1:{port}/v1"), Settings())
    with closing(engine), serve_site(engine) as (url, _):
        visitor = visit(url)
        expect(visitor.status).to_contain_text("does not answer")
        yield url, visitor, port


@pytest.mark.browser
def test_an_open_page_shows_the_model_when_its_server_comes(early):
    url, visitor, port = early
    assert httpx.get(f"{url}/health").json()["status"] == "failed"
    assert httpx.get(f"{url}/v1/models").json()["data"] == []
    with Upstream(port=port):
        expect(visitor.status).to_contain_text("big/model")
        expect(visitor.page.get_by_role("heading", name="big/model")).to_be_visible()
        assert httpx.get(f"{url}/health").json() == {"status": "ready", "model": "big/model"}
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "big/model"
        visitor.ask("Hi")
        expect(visitor.replies).to_have_text("Hello there.")


@pytest.mark.browser
def test_a_message_to_a_server_that_has_come_is_answered_at_once_and_its_cost_stays(early):
    _, visitor, port = early
    with Upstream(port=port):
        visitor.ask("Hi")
        expect(visitor.replies).to_have_text("Hello there.")
        expect(visitor.page.get_by_role("heading", name="big/model")).to_be_visible()
        expect(visitor.status).to_contain_text("2 tokens")


@pytest.mark.browser
def test_a_model_that_cannot_be_loaded_says_why_in_the_line_and_to_each_message(visit):
    def fail(report):
        raise ModelNotFound("There is no model x/y. Correct --model.")

    with serve_page(StartingEngine(fail)) as url:
        visitor = visit(url)
        expect(visitor.status).to_have_text("There is no model x/y. Correct --model.")
        visitor.write("Hi")
        expect(visitor.toast).to_have_text("There is no model x/y. Correct --model.")
        expect(visitor.message).to_have_value("Hi")
