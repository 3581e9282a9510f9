from __future__ import annotations

import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

expect.set_options(timeout=20_000)  # a busy machine is not a broken page
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium. Without one, tests that need it are skipped, but never in CI."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None and "CI" not in os.environ:
        pytest.skip("There is no Chromium here.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
