"""On a Hugging Face Space: on plain hardware, and with the real `spaces` package on ZeroGPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from gradio_client import Client
from playwright.sync_api import expect

from chat.settings import Settings
from chat.web.access import is_open
from tests.engine.models import tiny_llama
from tests.fakes import FakeEngine
from tests.web.pages import Visitor, build_page, serve_page

SPACE = {"SPACE_ID": "someone/chat", "SYSTEM": "spaces"}
TOKEN = "head.e30.signature"  # e30 is {}
KEY = {"Authorization": "Bearer secret"}


@pytest.fixture
def on_space(monkeypatch):
    for name, value in SPACE.items():
        monkeypatch.setenv(name, value)


def buttons(page):
    return {item["props"].get("value") for item in page.config["components"] if item["type"] == "button"}


def test_on_a_space_visitors_are_listened_to_and_elsewhere_only_this_machine(monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert Settings().host == "127.0.0.1"
    monkeypatch.setenv("SPACE_ID", "someone/chat")
    assert Settings().host == "0.0.0.0"
    assert Settings(host="127.0.0.1").host == "127.0.0.1"


def test_on_a_space_the_api_is_open_to_who_has_a_key(on_space):
    assert not is_open(Settings())
    assert is_open(Settings(api_key=("secret",)))


def test_a_space_can_be_duplicated(on_space):
    page = build_page(FakeEngine())
    assert "Duplicate this Space" in buttons(page)
    assert any("someone/chat?duplicate=true" in str(item["js"]) for item in page.config["dependencies"])


@pytest.mark.browser
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_page_of_a_space_is_as_high_as_its_window_with_the_footer_in_it(monkeypatch, browser, size):
    # Not SYSTEM: by it Gradio also watches the files for changes, in a thread that does not end.
    monkeypatch.setenv("SPACE_ID", SPACE["SPACE_ID"])
    width, height = size
    with serve_page(FakeEngine([["word\n\n" * 200]])) as url:
        context = browser.new_context(viewport={"width": width, "height": height})
        visitor = Visitor(context.new_page(), url)
        visitor.ask("Say it")
        visitor.expect_idle()
        if width > 640:
            expect(visitor.page.get_by_role("button", name="Use via API")).to_be_in_viewport(ratio=1)
        expect(visitor.page.locator("#status .prose")).to_be_in_viewport(ratio=1)
        assert visitor.page.evaluate("document.documentElement.scrollHeight") == height
        assert visitor.page.locator("#chat .bubble-wrap").evaluate("chat => chat.scrollHeight > chat.clientHeight")
        context.close()


def test_elsewhere_there_is_nothing_to_duplicate(monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert "Duplicate this Space" not in buttons(build_page(FakeEngine()))


@dataclass
class Scheduler:
    """Answers as the scheduler of ZeroGPU; an answer of `refusal` is a quota that is used up."""

    url: str = ""
    refusal: dict[str, object] | None = None
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    called: threading.Condition = field(default_factory=threading.Condition)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Wait for a call of `path`; return the queries of all of them."""
        with self.called:
            assert self.called.wait_for(lambda: any(called == path for called, _ in self.calls), timeout=60)
            return [query for called, query in self.calls if called == path]


@pytest.fixture(scope="module")
def scheduler():
    scheduler = Scheduler()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            url = urlsplit(self.path)
            with scheduler.called:
                scheduler.calls.append((url.path, {key: value[0] for key, value in parse_qs(url.query).items()}))
                scheduler.called.notify()
            status, answer = 200, {}
            if url.path == "/schedule":
                answer = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "none", "allowToken": "token"}
                if scheduler.refusal:
                    status, answer = 429, scheduler.refusal
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scheduler.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield scheduler
        server.shutdown()
        thread.join()


@contextmanager
def serve_space(environ: dict[str, str], home: Path, *command: str) -> Iterator[str]:
    """Run the app with nothing but the environment to tell it what to do; yield its address."""
    (home / "cgroup").write_text("1:devices:/space\n")
    own = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "CHAT_API_KEY": "secret",
        "CHAT_MODEL": str(home / "model"),
        "CHAT_PORT": "0",
        "CHAT_TEMPERATURE": "0",
        "CHAT_MAX_NEW_TOKENS": "200",
        "ZEROGPU_PROC_SELF_CGROUP_PATH": str(home / "cgroup"),
        "PYTHONUNBUFFERED": "1",
    }
    with (
        (home / "log").open("w+") as log,
        subprocess.Popen(
            [sys.executable, *command],
            env={**own, **SPACE, **environ},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            found = filter(None, (re.search(r"The page is at (\S+\d)", line) for line in process.stdout))
            yield next(found, [None, ""])[1] or pytest.fail((home / "log").read_text())
        finally:
            # With the processes it has forked, which would stay.
            os.killpg(process.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("space")
    model, tokenizer = tiny_llama()
    model.generation_config.eos_token_id = None
    for part in (model, tokenizer):
        part.save_pretrained(home / "model")
    return home


@pytest.fixture(scope="module")
def zerogpu(scheduler, home):
    environ = {"SPACES_ZERO_GPU": "true", "SPACES_ZERO_DEVICE_API_URL": scheduler.url}
    with serve_space(environ, home, "-m", "tests.zerogpu_space") as url:
        yield url


@pytest.fixture(autouse=True)
def _forget(scheduler):
    yield
    scheduler.calls.clear()
    scheduler.refusal = None


def test_the_app_reports_to_zerogpu_at_its_launch(zerogpu, scheduler):
    """Z1, Z2: torch came after `spaces`, and the weights went through its emulated GPU."""
    assert scheduler.asked("/startup-report") == [{}]
    assert httpx.get(f"{zerogpu}/health", headers=KEY).json()["status"] == "ready"


def test_the_page_answers_from_a_forked_process(zerogpu, scheduler):
    """Z3, Z4: asked for on behalf of the visitor, whom the Space's proxy names in a header."""
    client = Client(zerogpu, verbose=False, headers={"X-IP-Token": TOKEN})
    replies = list(client.submit("Hello", api_name="/chat"))
    assert replies[-1]
    assert len(set(replies)) > 2
    assert [(query["durationSeconds"], query["token"]) for query in scheduler.asked("/schedule")] == [("25", TOKEN)]
    assert len(scheduler.asked("/release")) == 1


def test_the_api_answers_there_too_on_the_pages_own_server(zerogpu, scheduler):
    """Z1"""
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    reply = httpx.post(f"{zerogpu}/v1/chat/completions", json=body, headers=KEY, timeout=60).json()
    assert reply["usage"]["completion_tokens"] == 8
    assert [query["durationSeconds"] for query in scheduler.asked("/schedule")] == ["16"]
    assert httpx.post(f"{zerogpu}/v1/chat/completions", json=body).status_code == 401


def test_who_leaves_gives_the_gpu_back(zerogpu, scheduler):
    """Z4: Stop works through the close of the generator."""
    body = {"text": "Hello", "max_new_tokens": 500}
    with httpx.stream("POST", f"{zerogpu}/generate", json=body, headers=KEY, timeout=60) as response:
        next(response.iter_text())
    assert scheduler.asked("/release")[0]["fail"] == "false"


def test_a_quota_that_is_used_up_is_told_in_words(zerogpu, scheduler):
    """Z3"""
    scheduler.refusal = {"left": 3, "wait": 3600}
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    reply = httpx.post(f"{zerogpu}/v1/chat/completions", json=body, headers=KEY, timeout=60)
    assert reply.status_code == 503
    assert "GPU limit" in reply.json()["error"]["message"]


def test_on_plain_hardware_the_app_runs_as_it_is(home):
    with serve_space({}, home, "app.py") as url:
        port = urlsplit(url).port
        assert httpx.get(f"http://127.0.0.1:{port}").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 401
