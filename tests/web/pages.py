"""The page, served for a test, and what a person does on it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr
from playwright.sync_api import Page, expect

from chat.settings import Settings
from chat.types import Engine
from chat.web.limits import Limits
from chat.web.page import create_page


def build_page(engine: Engine, **settings: object) -> gr.Blocks:
    """Return the engine's page, not launched."""
    chosen = Settings(**settings)
    return create_page(engine, chosen, Limits(chosen))


@contextmanager
def serve_page(engine: Engine, **settings: object) -> Iterator[str]:
    """Serve `engine`'s page on a free port; yield its address."""
    page = build_page(engine, **settings)
    try:
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, server_port=free_port())
        yield url
    finally:
        page.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Visitor:
    """Somebody with the page open. `hosts` are those that their browser has talked to."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.hosts = page, set()
        page.on("request", lambda request: self.hosts.add(re.match(r"\w+:(//[^/]+)?", request.url)[0]))
        page.goto(url)
        expect(self.message).to_be_visible(timeout=60_000)

    @property
    def message(self):
        return self.page.locator("#message textarea")

    @property
    def status(self):
        # Not all of #status: beside the line, Gradio keeps a hidden timer there, whose text changes by itself.
        return self.page.locator("#status .prose")

    @property
    def replies(self):
        return self.page.locator('#chat [data-testid="bot"]')

    @property
    def questions(self):
        return self.page.locator('#chat [data-testid="user"]')

    @property
    def toast(self):
        return self.page.get_by_test_id("toast-text")

    def write(self, text: str) -> None:
        self.message.fill(text)
        self.message.press("Enter")

    def ask(self, text: str) -> None:
        """Write a message and see it accepted."""
        self.write(text)
        expect(self.message).to_have_value("")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).last.click()

    def expect_busy(self) -> None:
        expect(self.page.locator("#stop")).to_be_visible()
        expect(self.page.locator("#send")).to_be_hidden()

    def expect_idle(self, **timeout: float) -> None:
        """Wait until the page can take the next message."""
        expect(self.page.locator("#send")).to_be_visible(**timeout)
        expect(self.page.locator("#stop")).to_be_hidden()
        # The buttons under the messages work again once the event has ended.
        expect(self.page.locator("#chat .message-buttons button:disabled")).to_have_count(0)
