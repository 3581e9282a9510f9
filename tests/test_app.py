"""`python app.py` as people run it, up to the real model in a real browser."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import expect

import app
from tests.web.pages import Visitor

LOADING_MS, REPLY_MS = 280_000, 120_000


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@contextmanager
def serve_app(*flags: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Run app.py on a free port; yield its process and its address."""
    command = [sys.executable, "-u", "app.py", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process, next(filter(None, (re.search(r"http://[\d.:]+", line) for line in process.stdout)))[0]
        finally:
            process.terminate()


def test_help_answers_without_torch_or_gradio():
    code = "import app, sys\ntry: app.main(['--help'])\nfinally: assert not {'torch', 'gradio'} & set(sys.modules)"
    result = run("-c", code)
    assert result.returncode == 0, result.stderr
    assert "--max-new-tokens" in result.stdout


def test_with_a_model_elsewhere_neither_torch_nor_transformers_is_imported():
    code = """
import sys
import app, chat.cli
from chat.engine import create_engine
from chat.settings import Settings
from chat.web.api import create_api
from chat.web.limits import Limits
from chat.web.page import create_page

settings = Settings(engine="http://127.0.0.1:9/v1")
engine, limits = create_engine(settings), Limits(settings)
create_page(engine, settings, limits), create_api(engine, settings, limits)
engine.close()
assert not {"torch", "transformers"} & set(sys.modules)
"""
    result = run("-c", code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("engine", ["hub", "http://127.0.0.1:9/v1"])
def test_zerogpu_is_refused_for_a_model_elsewhere_with_what_to_choose(monkeypatch, engine):
    """Z1: a Space that decorates no function is shut down there, without a word about it on its page."""
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    with pytest.raises(SystemExit, match=r"Choose CPU hardware.*CHAT_ENGINE unset"):
        app.main(["--engine", engine])


def test_a_bad_value_is_explained_and_nothing_starts():
    result = run("app.py", "--temperature", "9")
    assert result.returncode == 2
    assert "temperature: '9' is not allowed" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_taken_port_is_named_with_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"port {taken} is taken.*--port"):
            app.choose_port("127.0.0.1", taken)


def test_an_unknown_host_is_named_with_the_way_out():
    with pytest.raises(SystemExit, match=r"cannot listen on 192\.0\.2\.1.*--host"):
        app.choose_port("192.0.2.1", 0)


def test_port_0_is_a_free_one():
    assert app.choose_port("127.0.0.1", 0) > 0


def test_the_page_is_up_whatever_the_model_does_and_ctrl_c_ends_it(tmp_path):
    with serve_app("--model", str(tmp_path / "missing")) as (process, url):
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}/health").json()["status"] in ("loading", "failed")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stdout.read()


@pytest.fixture(scope="module")
def real_app():
    with serve_app("--max-new-tokens", "120", "--temperature", "0") as (_, url):
        yield url


@pytest.fixture
def visit(browser, real_app):
    contexts = []

    def visit(**options: object) -> Visitor:
        contexts.append(browser.new_context(**options))
        return Visitor(contexts[-1].new_page(), real_app)

    yield visit
    for context in contexts:
        context.close()


@pytest.mark.real
@pytest.mark.browser
class TestRealModel:
    def test_the_capital_of_france_is_paris_word_by_word(self, visit):
        """The question may come before the model is there."""
        visitor = visit()
        visitor.page.evaluate("""() => {
            window.lengths = new Set();
            new MutationObserver(() => {
                const reply = document.querySelector('#chat [data-testid="bot"]');
                if (reply) window.lengths.add(reply.textContent.length);
            }).observe(document.body, {subtree: true, childList: true, characterData: true});
        }""")
        visitor.ask("What is the capital of France?")
        expect(visitor.replies).to_contain_text("Paris", timeout=LOADING_MS)
        visitor.expect_idle(timeout=REPLY_MS)
        expect(visitor.status).to_contain_text("tokens/s")
        assert visitor.page.evaluate("window.lengths.size") >= 4
        assert visitor.hosts == {visitor.page.url.rstrip("/")}

    def test_a_stop_keeps_half_a_reply_which_then_goes_on(self, visit):
        """T1, T9"""
        visitor = visit()
        visitor.ask("Tell me a long story about a dragon.")
        expect(visitor.replies).to_contain_text(re.compile(r"\w+"), timeout=REPLY_MS)
        visitor.page.locator("#stop").click()
        visitor.expect_idle()
        expect(visitor.status).to_contain_text("Stopped after")
        half = visitor.replies.inner_text()
        assert half.strip()
        visitor.press("Continue")
        expect(visitor.status).not_to_contain_text("Stopped after")
        visitor.expect_idle(timeout=REPLY_MS)
        assert visitor.replies.inner_text().startswith(half.strip()[:20])
        assert len(visitor.replies.inner_text()) > len(half)

    def test_a_stop_is_heard_while_a_long_prompt_is_read(self, visit):
        """T8"""
        visitor = visit()
        visitor.ask("word " * 4000)
        expect(visitor.status).to_contain_text("Reading", timeout=REPLY_MS)
        visitor.page.locator("#stop").click()
        visitor.expect_idle()
        visitor.press("Undo")
        expect(visitor.message).to_have_value("word " * 4000)

    def test_retry_and_edit_answer_again(self, visit):
        visitor = visit()
        visitor.ask("What is the capital of France?")
        expect(visitor.replies).to_contain_text("Paris", timeout=REPLY_MS)
        visitor.expect_idle(timeout=REPLY_MS)
        first = visitor.replies.inner_text()
        visitor.press("Retry")
        visitor.expect_busy()
        visitor.expect_idle(timeout=REPLY_MS)
        assert visitor.replies.inner_text() == first
        visitor.press("Edit")
        visitor.page.locator("#chat textarea").fill("What is the capital of Japan?")
        visitor.press("Submit")
        expect(visitor.replies).to_contain_text("Tokyo", timeout=REPLY_MS)
        expect(visitor.questions).to_have_text("What is the capital of Japan?")

    def test_two_browsers_at_once_each_get_their_own(self, visit):
        """G9, H5: the second waits its turn in the engine's line."""
        first, second = visit(), visit(viewport={"width": 390, "height": 844})
        first.ask("What is the capital of France?")
        second.ask("What is the capital of Japan?")
        expect(first.replies).to_contain_text("Paris", timeout=REPLY_MS)
        expect(second.replies).to_contain_text("Tokyo", timeout=REPLY_MS)
        assert "Tokyo" not in first.replies.inner_text()
        assert second.page.evaluate("document.documentElement.scrollWidth") <= 390
