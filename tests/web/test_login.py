"""The login: what it keeps out, on every route, and what wrong passwords cost."""

from __future__ import annotations

import asyncio
import re
import threading

import httpx
import pytest
from fastapi import HTTPException
from gradio_client import Client
from playwright.sync_api import expect

from chat.accounts import hash_password
from chat.web import login
from chat.web.fields import MAX_BODY_BYTES
from chat.web.login import MAX_LENGTH, Login
from tests.fakes import FakeEngine
from tests.web.pages import Visitor
from tests.web.sites import serve_site

KEY = {"Authorization": "Bearer key"}
RIGHT, WRONG = {"username": "ann", "password": "right"}, {"username": "ann", "password": "wrong"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
HARMLESS = {
    *("/", "/login", "/logout", "/health", "/stream", "/openapi.json"),
    *("/svelte/x", "/static/x", "/assets/x", "/favicon.ico", "/theme.css", "/robots.txt", "/manifest.json"),
    *("/pwa_icon", "/pwa_icon/x"),
    *(f"/gradio_api/{name}" for name in ("app_id", "login_check", "startup-events", "theme.css", "token", "user")),
}
"""How the page looks, and whether it is there."""


@pytest.fixture(scope="module")
def site():
    """An engine, the address of a page with a login and of an API with a key, and all routes there."""
    engine = FakeEngine()
    with serve_site(engine, auth=["ann:right", "bob:also:right"], api_key=["key"]) as (url, routes):
        yield engine, url, list(_doors(routes))


def _doors(routes):
    for route in routes:
        if hasattr(route, "original_router"):
            yield from _doors(route.original_router.routes)
        else:
            yield from ((method, re.sub(r"\{[^}]*\}", "x", route.path)) for method in route.methods)


def status(client: httpx.Client, method: str, path: str, **options: object) -> int:
    with client.stream(method, path, **options) as response:
        return response.status_code


@pytest.mark.parametrize("headers", [{}, {"Cookie": "access-token-x=y"}, {"Authorization": "Bearer wrong"}])
def test_without_login_and_key_every_door_is_closed(site, headers):
    engine, url, doors = site
    asked = len(engine.prompts)
    with httpx.Client(base_url=url, headers=headers) as client:
        answers = {(*door, status(client, *door, json={})) for door in doors}
    assert {path.rstrip("/") or "/" for _, path, code in answers if code not in (401, 403, 405)} <= HARMLESS
    assert len(doors) > 60
    assert len(engine.prompts) == asked


@pytest.mark.parametrize("path", ["/gradio_api/queue/join", "/gradio_api/call/chat", "/gradio_api/heartbeat/x"])
def test_a_key_opens_no_door_of_the_page(site, path):
    _, url, _ = site
    assert httpx.post(url + path, json={"data": ["Hi"]}, headers=KEY).status_code in (401, 405)


def test_a_login_opens_no_door_of_the_api(site):
    engine, url, _ = site
    asked = len(engine.prompts)
    with httpx.Client(base_url=url) as client:
        assert client.post("/login", data=RIGHT).json() == {"success": True}
        assert client.get("/gradio_api/info").status_code == 200
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 401
        assert client.post("/generate", json={"text": "Once"}).status_code == 401
    assert len(engine.prompts) == asked


def test_without_a_key_a_login_closes_the_api_even_here():
    with serve_site(FakeEngine(), auth=["ann:right"]) as (url, _):
        response = httpx.post(f"{url}/v1/chat/completions", json=CHAT)
    assert response.status_code == 403
    assert "--api-key" in response.json()["error"]["message"]


def test_name_and_password_open_the_endpoint_and_the_key_opens_the_api(site):
    _, url, _ = site
    client = Client(url, auth=("bob", "also:right"), verbose=False, analytics_enabled=False)
    assert client.predict("Hi", api_name="/chat") == "Hello there."
    assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=KEY).text == "Hello there."


def test_a_logout_ends_the_login(site):
    _, url, _ = site
    with httpx.Client(base_url=url) as client:
        client.post("/login", data=RIGHT)
        kept = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        assert client.get("/gradio_api/info", headers={"Cookie": kept}).status_code == 200
        client.get("/logout")
        assert client.get("/gradio_api/info", headers={"Cookie": kept}).status_code == 401


def test_wrong_passwords_are_refused_and_hold_nobody_up(site, monkeypatch):
    _, url, _ = site
    monkeypatch.setattr(login, "PATIENCE_S", 4)
    from_afar = {"X-Forwarded-For": "203.0.113.7"}

    def guess():
        codes.append(httpx.post(f"{url}/login", data=WRONG, headers=from_afar, timeout=60).status_code)

    codes, guesses = [], [threading.Thread(target=guess) for _ in range(12)]
    for thread in guesses:
        thread.start()
    assert httpx.post(f"{url}/login", data=RIGHT, timeout=60).status_code == 200
    assert httpx.get(f"{url}/health").status_code == 200
    for thread in guesses:
        thread.join()
    assert set(codes) == {400, 429}
    assert 6 <= codes.count(400) <= 8  # while the first ones are checked, the next comes nearer


def test_gradio_client_says_that_the_password_is_wrong(site):
    _, url, _ = site
    with pytest.raises(ValueError, match="Could not login"):
        Client(url, auth=("bob", "no"), verbose=False, analytics_enabled=False)


def test_a_refused_guess_says_when_to_come_back():
    door = Login({"ann": hash_password("right")})
    door._by_address._free_at[""] = door._by_address._clock() + 100
    with pytest.raises(HTTPException, match="Try again in") as refused:
        asyncio.run(door.check("ann", "right"))
    assert refused.value.status_code == 429
    assert 70 < int(refused.value.headers["Retry-After"]) < 90


def test_texts_that_are_no_passwords_cost_nothing():
    door = Login({"ann": hash_password("right")})
    assert not asyncio.run(door.check("ann", "x" * (MAX_LENGTH + 1)))
    assert not door._by_address._free_at


@pytest.mark.parametrize(("name", "password"), [("ann", ""), ("", "right"), ("Ann", "right"), ("bob", "right")])
def test_only_the_name_with_its_password_is_right(name, password):
    door = Login({"ann": hash_password("right")})
    assert not asyncio.run(door.check(name, password))
    assert asyncio.run(door.check("ann", "right"))


def test_who_was_here_is_not_kept_out_by_what_others_try_on_the_name():
    door = Login({"ann": hash_password("right")})
    assert asyncio.run(door.check("ann", "right"))
    door._by_name._free_at["ann"] = door._by_name._clock() + 1000
    assert asyncio.run(door.check("ann", "right"))


def test_right_passwords_given_at_once_are_no_wrong_ones():
    """A class that shares a name comes at the same minute."""
    door = Login({"ann": hash_password("right")})

    async def check(number: int) -> bool:
        login._address.set(f"203.0.113.{number}")
        return await door.check("ann", "right")

    async def check_all() -> list[bool]:
        return await asyncio.gather(*map(check, range(40)))

    assert all(asyncio.run(check_all()))
    assert door._by_name.take("ann") == 0


def test_a_body_that_is_too_large_is_refused(site):
    _, url, _ = site
    with httpx.Client(base_url=url) as client:
        client.post("/login", data=RIGHT)
        body = {"data": ["x" * MAX_BODY_BYTES], "session_hash": "x", "fn_index": 0}
        assert client.post("/gradio_api/queue/join", json=body).status_code == 413


def test_no_file_is_taken(site):
    _, url, _ = site
    with httpx.Client(base_url=url) as client:
        assert client.post("/gradio_api/upload", files={"files": b"x"}).status_code == 401
        client.post("/login", data=RIGHT)
        assert client.post("/gradio_api/upload", files={"files": b"x"}).status_code == 413


@pytest.mark.browser
def test_a_person_logs_in_and_talks(browser, site):
    """G17"""
    _, url, _ = site
    page = browser.new_page()
    page.goto(url)
    page.get_by_label("username").fill("ann")
    page.get_by_label("password").fill("wrong")
    page.get_by_role("button", name="Login").click()
    expect(page.get_by_text("Incorrect")).to_be_visible()
    page.get_by_label("username").fill("ann")
    page.get_by_label("password").fill("right")
    page.get_by_role("button", name="Login").click()
    expect(page.locator("#message textarea")).to_be_visible()
    visitor = Visitor(page, url)
    visitor.ask("Hi")
    expect(visitor.replies.last).to_contain_text("Hello there.")
    page.close()
