from __future__ import annotations

import threading

import pytest
from playwright.sync_api import expect

from chat.types import GenerationFailed, QueueFull
from tests.fakes import FakeEngine
from tests.web.server import WatchedEngine, serve

pytestmark = pytest.mark.browser


@pytest.fixture
def open_page(browser):
    """Return a function that serves an engine and opens its /stream page on a phone's screen."""
    servers, contexts = [], []

    def start(engine: FakeEngine, **settings: object):
        servers.append(serve(engine, **settings))
        contexts.append(browser.new_context(viewport={"width": 390, "height": 700}))
        page = contexts[-1].new_page()
        page.goto(servers[-1].__enter__() + "/stream")
        return page

    yield start
    for context in contexts:
        context.close()
    for server in servers:
        server.__exit__(None, None, None)


def ask(page, text):
    page.get_by_role("textbox").fill(text)
    page.get_by_role("button", name="Continue").click()


def test_text_grows_in_japanese_and_emoji(open_page):
    """H2, S6: characters are whole although the pieces come one by one."""
    second, third = threading.Event(), threading.Event()
    page = open_page(FakeEngine([["は、", second, "長い👩‍👩‍👧", third, "物語 <b>です</b>\n\tend"]]))
    ask(page, "昔々")
    reply = page.locator("#reply")
    expect(reply).to_have_text("昔々は、")
    second.set()
    expect(reply).to_have_text("昔々は、長い👩‍👩‍👧")
    third.set()
    expect(page.get_by_role("button", name="Continue")).to_be_enabled()
    assert reply.text_content() == "昔々は、長い👩‍👩‍👧物語 <b>です</b>\n\tend"


def test_stop_keeps_the_text_and_stops_the_engine(open_page):
    """T1, T5, T9"""
    engine = WatchedEngine([["は、", threading.Event(), "late"], ["again"]])
    page = open_page(engine)
    ask(page, "昔々")
    expect(page.locator("#reply")).to_have_text("昔々は、")
    page.get_by_role("button", name="Stop").click()
    assert engine.next_closed() == 0
    expect(page.locator("#reply")).to_have_text("昔々は、")
    expect(page.locator("#error")).to_have_text("")
    ask(page, "And ")
    expect(page.locator("#reply")).to_have_text("And again")


def test_leaving_the_page_stops_the_engine(open_page):
    """T5"""
    engine = WatchedEngine([["one", threading.Event()]])
    page = open_page(engine)
    ask(page, "Once ")
    expect(page.locator("#reply")).to_have_text("Once one")
    page.close()
    assert engine.next_closed() == 0


def test_errors_are_shown_in_words(open_page):
    """G20: and the next text can be sent."""
    fail = threading.Event()
    failing = ["one", fail, GenerationFailed("It failed.")]
    page = open_page(FakeEngine([[QueueFull("Everybody waits.")], failing, ["two"]]))
    ask(page, "Once ")
    expect(page.locator("#error")).to_have_text("Everybody waits.")
    ask(page, "Once ")
    expect(page.locator("#reply")).to_have_text("Once one")
    fail.set()
    expect(page.locator("#error")).not_to_be_empty()
    expect(page.locator("#reply")).to_have_text("Once one")
    ask(page, "Once ")
    expect(page.locator("#reply")).to_have_text("Once two")
    expect(page.locator("#error")).to_have_text("")


def test_key_is_asked_for_once(open_page):
    page = open_page(FakeEngine(), api_key=["secret"], share=True)
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept("secret")))
    for _ in range(2):
        ask(page, "Once ")
        expect(page.locator("#reply")).to_have_text("Once Hello there.")
    assert asked == ["API key"]


def test_nothing_is_wider_than_a_phone_and_no_other_host_is_asked(browser):
    requests: list[str] = []
    with serve(FakeEngine([["long" * 500]])) as url:
        page = browser.new_page(viewport={"width": 390, "height": 700})
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url + "/stream")
        ask(page, "Once ")
        expect(page.get_by_role("button", name="Continue")).to_be_enabled()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.close()
    assert requests
    assert all(request.startswith(url) for request in requests)
