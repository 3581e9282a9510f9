"""The README's several copies of the page, as processes behind one real nginx, with one server behind them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import Popen

import httpx
import pytest
from gradio_client import Client

from tests.nginx import read_blocks, serve_blocks
from tests.test_app import serve_app
from tests.upstream import Upstream

KEY = {"Authorization": "Bearer right"}
ADDRESSES = [f"127.0.0.{number}" for number in range(1, 30)]


@dataclass
class Site:
    """Two copies behind nginx. `url` is nginx's, `copies` are the processes under the names they give themselves."""

    url: str
    engine: Upstream
    copies: dict[str, Popen]

    def visit(self, address: str) -> httpx.Client:
        """Come from another address of this machine."""
        transport = httpx.HTTPTransport(local_address=address, verify=False)
        return httpx.Client(base_url=self.url, transport=transport, headers=KEY, timeout=60)

    def home(self, address: str) -> str:
        """Return the name of the copy that serves an address."""
        with self.visit(address) as http:
            return name_of(http.get)

    def neighbours(self) -> tuple[str, str]:
        """Return this machine's usual address, and one that another copy serves."""
        here = self.home(ADDRESSES[0])
        return ADDRESSES[0], next(address for address in ADDRESSES if self.home(address) != here)


def name_of(get: Callable[[str], httpx.Response]) -> str:
    return get("/gradio_api/app_id").json()["app_id"]


@contextmanager
def serve_copy(engine: Upstream) -> Iterator[tuple[str, Popen]]:
    with serve_app("--engine", engine.url, "--root-path", "/chat", "--api-key", "right") as (process, url):
        yield url.removeprefix("http://"), process


@pytest.fixture
def site(tmp_path) -> Iterator[Site]:
    with (
        Upstream([["Hello", " there."]]) as engine,
        serve_copy(engine) as (first, one),
        serve_copy(engine) as (second, other),
    ):
        places = {"127.0.0.1:7860;": f"{first};", "127.0.0.1:7861;": f"{second};"}
        server, copies = read_blocks()
        blocks = [copies, server.replace("http://127.0.0.1:7860/;", "http://chat/;")]
        names = [name_of(httpx.Client(base_url=f"http://{place}").get) for place in (first, second)]
        with serve_blocks(tmp_path, blocks, places) as url:
            yield Site(url, engine, dict(zip(names, (one, other), strict=True)))


def say(http: httpx.Client, text: str) -> str:
    """Ask over the API; return the reply."""
    body = {"messages": [{"role": "user", "content": text}], "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


def test_a_visitor_stays_with_one_copy_and_both_have_visitors(site):
    homes = {address: site.home(address) for address in ADDRESSES}
    assert set(homes.values()) == set(site.copies)
    assert {address: site.home(address) for address in ADDRESSES} == homes


def test_when_a_copy_dies_the_others_visitors_notice_nothing_and_its_own_move(site):
    """G11: a conversation goes on, whatever happens to the copy beside it."""
    staying, moving = site.neighbours()
    client = Client(site.url, ssl_verify=False, verbose=False, analytics_enabled=False)
    assert client.predict("One", api_name="/chat") == "Hello there."
    with site.visit(moving) as http:
        assert say(http, "Hi") == "Hello there."

    left = site.home(staying)
    dying = site.copies[site.home(moving)]
    dying.kill()
    dying.wait()

    assert client.predict("Two", api_name="/chat") == "Hello there."
    said = [message["content"] for message in site.engine.asked[-1]["messages"]]
    assert said == ["One", "Hello there.", "Two"]
    assert site.home(staying) == left
    with site.visit(moving) as http:
        assert http.get("").status_code == 200
        assert say(http, "Hi again") == "Hello there."
    assert site.home(moving) == left
