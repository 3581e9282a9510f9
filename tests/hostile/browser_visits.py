"""Visitors with a real browser."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, TimeoutError, async_playwright, expect

from tests.conftest import BROWSERS
from tests.hostile.page_visits import ENDLESS
from tests.hostile.visitor import LOGIN, Visitor

WAIT_MS = 60_000


@asynccontextmanager
async def start_browser() -> AsyncIterator[Browser | None]:
    """Start a headless Chromium, or none if there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        yield None
        return
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def browses(visitor: Visitor, browser: Browser) -> None:
    """Talk, stop a reply, reload during another, and close the tab in the middle of the last."""
    began = time.monotonic()
    context = await browser.new_context(extra_http_headers=visitor.headers)
    try:
        page = await context.new_page()
        page.set_default_timeout(WAIT_MS)
        await page.goto(visitor.url)
        await page.get_by_label("username").fill(LOGIN[0])
        await page.get_by_label("password").fill(LOGIN[1])
        await page.get_by_role("button", name="Login").click()
        await ask(page, visitor.question(5, 30))
        await see_end(page)
        await ask(page, ENDLESS)
        await page.locator("#stop").click(timeout=WAIT_MS)
        await see_end(page)
        visitor.note("browser: reply stopped")
        await ask(page, ENDLESS)
        await page.reload()
        await expect(page.locator('#chat [data-testid="user"]').first).to_be_visible(timeout=WAIT_MS)
        await ask(page, visitor.question(5, 30))
        await see_end(page)
        visitor.note("browser: reply finished after a reload")
        await ask(page, ENDLESS)
        visitor.note("browser: tab closed in mid-reply")
    except (AssertionError, TimeoutError) as error:  # of a reply that ended early there is nothing to stop
        visitor.note_failure(f"browser: {str(error).splitlines()[0]}", began)
    finally:
        await context.close()


async def ask(page: Page, question: str) -> None:
    box = page.locator("#message textarea")
    await box.fill(question)
    await box.press("Enter")
    await expect(page.locator("#stop")).to_be_visible(timeout=WAIT_MS)


async def see_end(page: Page) -> None:
    await expect(page.locator("#send")).to_be_visible(timeout=WAIT_MS)
