"""A base model's page offers one text that grows, in a real browser with a scripted engine behind it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.fakes import INFO, FakeEngine
from tests.web.pages import Visitor, serve_page

pytestmark = pytest.mark.browser


@pytest.fixture
def engine():
    return FakeEngine(info=replace(INFO, is_base=True))


@pytest.fixture
def visitor(browser, engine):
    with serve_page(engine) as url:
        context = browser.new_context(viewport={"width": 390, "height": 800})
        yield Visitor(context.new_page(), url)
        context.close()


def begin(visitor, text):
    visitor.page.locator("#mode").click()
    field = visitor.page.locator("#text textarea")
    field.fill(text)
    visitor.page.locator("#continue").click()
    return field


def test_the_page_says_that_this_is_a_base_model(visitor):
    """C5"""
    expect(visitor.status).to_contain_text("base model")
    expect(visitor.page.locator("#mode")).to_be_visible()


def test_a_text_grows_where_it_was_written_and_goes_on_as_it_stands(visitor, engine):
    rest = threading.Event()
    engine.replies = [[" 日本語\n", rest, "👋🏽 <b>"], [" and on"]]
    field = begin(visitor, "Once  upon")
    expect(field).to_have_value("Once  upon 日本語\n")
    rest.set()
    expect(field).to_have_value("Once  upon 日本語\n👋🏽 <b>")
    visitor.page.locator("#continue").click()
    expect(field).to_have_value("Once  upon 日本語\n👋🏽 <b> and on")
    assert engine.prompts == ["Once  upon", "Once  upon 日本語\n👋🏽 <b>"]


def test_stop_keeps_what_has_grown(visitor, engine):
    """T1 T9"""
    engine.replies = [[" a time", threading.Event()]]
    field = begin(visitor, "Once upon")
    expect(field).to_have_value("Once upon a time")
    visitor.page.locator("#halt").click()
    expect(visitor.page.locator("#continue")).to_be_visible()
    expect(field).to_have_value("Once upon a time")
    assert engine.closed == [0]


def test_nothing_to_go_on_with_is_said(visitor):
    begin(visitor, "")
    expect(visitor.toast).to_contain_text("Write its beginning first")


def test_a_chat_model_offers_no_such_mode(browser):
    with serve_page(FakeEngine()) as url:
        visitor = Visitor(browser.new_context().new_page(), url)
        expect(visitor.status).to_contain_text("fake/model")
        expect(visitor.page.locator("#mode")).to_be_hidden()
