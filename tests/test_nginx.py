"""The README's block for nginx, in a real nginx: under a prefix, with TLS, with its own buffering."""

from __future__ import annotations

import threading
from contextlib import closing

import httpx
import pytest
from gradio_client import Client
from openai import OpenAI
from playwright.sync_api import expect

from tests.nginx import read_blocks, serve_blocks
from tests.web.pages import Visitor
from tests.web.server import WatchedEngine
from tests.web.sites import serve_site

LOGIN = ("ann", "right")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An engine, and the address at which nginx serves its page with a login and its API with a key."""
    folder, engine = tmp_path_factory.mktemp("nginx"), WatchedEngine()
    with (
        serve_site(engine, root_path="/chat", auth=[":".join(LOGIN)], api_key=["key"]) as (upstream, _),
        serve_blocks(folder, read_blocks()[:1], {"http://127.0.0.1:7860": upstream}) as url,
    ):
        yield engine, url


@pytest.fixture
def engine(site):
    engine, _ = site
    engine.replies = [["Hello", " there."]]
    return engine


@pytest.fixture
def url(site, engine):
    return site[1]


@pytest.fixture
def api(url):
    with httpx.Client(verify=False) as http:
        yield OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, http_client=http)


def ask(api: OpenAI):
    return api.chat.completions.create(model="", messages=[{"role": "user", "content": "Hi"}], stream=True)


def test_the_events_of_the_api_come_one_by_one(engine, api):
    """H3: the first word is there while the model still thinks about the second."""
    rest = threading.Event()
    engine.replies = [["Hello", rest, " there."]]
    words = []
    for chunk in ask(api):
        words.append(chunk.choices[0].delta.content or "")
        if words[-1] == "Hello":
            rest.set()
    assert "".join(words) == "Hello there."


def test_a_client_that_leaves_stops_the_model(engine, api):
    engine.replies = [["Hello", threading.Event()]]
    with closing(ask(api)) as stream:
        next(iter(stream))
    assert engine.next_closed() == len(engine.prompts) - 1


def test_plain_text_streams_from_the_page_for_it(engine, url):
    rest = threading.Event()
    engine.replies = [["Hello", rest, " there."]]
    headers = {"Authorization": "Bearer key"}
    with httpx.Client(verify=False, base_url=url, headers=headers) as client:
        assert 'fetch("generate"' in client.get("stream").text
        with client.stream("POST", "generate", json={"text": "Once"}) as response:
            texts = response.iter_text()
            assert next(texts) == "Hello"
            rest.set()
            assert "".join(texts) == " there."


def test_gradios_client_logs_in_and_streams(engine, url):
    """G14, G15"""
    rest = threading.Event()
    engine.replies = [["Hello", rest, " there."]]
    client = Client(url, auth=LOGIN, ssl_verify=False, verbose=False, analytics_enabled=False)
    job = client.submit("Hi", api_name="/chat")
    assert "Hello" in job
    rest.set()
    assert job.result() == "Hello there."


def test_the_proxy_opens_nothing(url):
    with httpx.Client(verify=False, base_url=url) as client:
        assert client.get("config").status_code == 401
        assert client.post("gradio_api/queue/join", json={}).status_code == 401
        assert client.post("generate", json={"text": "Once"}).status_code == 401


@pytest.mark.browser
def test_a_person_logs_in_talks_and_stops(browser, engine, url):
    """G15, G17"""
    first = len(engine.prompts)
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(url)
    page.get_by_label("username").fill(LOGIN[0])
    page.get_by_label("password").fill(LOGIN[1])
    page.get_by_role("button", name="Login").click()
    expect(page.locator("#message textarea")).to_be_visible()
    visitor = Visitor(page, f"{url}/")
    engine.replies = [["Bye."]] * first + [["Hello", threading.Event()], ["Bye."]]
    visitor.ask("Hi")
    expect(visitor.replies.last).to_contain_text("Hello")
    visitor.expect_busy()
    visitor.press("Stop")
    visitor.expect_idle()
    visitor.ask("And now?")
    expect(visitor.replies.last).to_contain_text("Bye.")
    assert {host for host in visitor.hosts if host.startswith("http")} == {url.removesuffix("/chat")}
    context.close()
