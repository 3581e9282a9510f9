from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from chat.settings import Settings
from tests.fakes import FakeEngine
from tests.web.sites import api_routes

BODY = {"text": "Once"}
GUARDED = [
    ("POST", "/generate"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/load_model"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/fake/model"),
]


def client(base_url: str = "http://127.0.0.1:7860", **settings: object) -> TestClient:
    return TestClient(FastAPI(routes=api_routes(FakeEngine(), **settings)), base_url)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "[::1]:7860"])
def test_local_server_needs_no_key(host):
    assert client(f"http://{host}").post("/generate", json=BODY).text == "Hello there."


@pytest.mark.parametrize("settings", [{"share": True}, {"host": "0.0.0.0"}, {"host": "example.com"}, {"host": "::"}])
@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_server_that_others_can_reach_is_closed_without_a_key(method, path, settings):
    response = client(**settings).request(method, path, json=BODY)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "api_closed"
    assert "--api-key" in response.json()["error"]["message"]


def test_log_says_that_the_api_is_closed(caplog):
    with caplog.at_level(logging.WARNING):
        client()
        assert caplog.text == ""
        client(share=True)
    assert "--api-key" in caplog.text


@pytest.mark.parametrize("settings", [{}, {"share": True, "host": "0.0.0.0"}])
@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_key_is_needed_everywhere_once_there_is_one(method, path, settings):
    response = client(api_key=["secret"], **settings).request(method, path, json=BODY)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", ["first", "zweiter-schlüssel"])
def test_each_of_several_keys_opens(key):
    guarded = client(share=True, api_key=["first", "zweiter-schlüssel"])
    assert guarded.post("/generate", json=BODY, headers={b"Authorization": f"Bearer {key}".encode()}).text


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret", "secret"]
)
def test_no_other_key_opens(header):
    assert client(api_key=["secret"]).get("/v1/models", headers={"Authorization": header}).status_code == 401


def test_environment_gives_keys_that_are_never_printed(monkeypatch):
    monkeypatch.setenv("CHAT_API_KEY", "secret")
    settings = Settings()
    assert [key.get_secret_value() for key in settings.api_key] == ["secret"]
    assert "secret" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize("settings", [{}, {"share": True}, {"api_key": ["secret"]}])
@pytest.mark.parametrize("path", ["/health", "/stream"])
def test_health_and_the_page_are_always_open(path, settings):
    assert client("http://chat.example.com", **settings).get(path).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:7860"},  # a foreign name that was pointed at this machine
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},  # another program's page on this machine
        {"Host": "127.0.0.1:7860", "Origin": "http://localhost:7860"},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Host": "[::1"},
    ],
)
def test_without_a_key_other_sites_and_machines_get_nothing(headers):
    assert client().post("/generate", json=BODY, headers=headers).status_code == 403


def test_without_a_key_the_servers_own_page_is_answered():
    assert client().post("/generate", json=BODY, headers={"Origin": "http://127.0.0.1:7860"}).status_code == 200


def test_with_a_key_any_name_and_proxy_will_do():
    headers = {"Authorization": "Bearer secret", "X-Forwarded-For": "203.0.113.9", "Origin": "https://app.example"}
    response = client("https://chat.example.com", api_key=["secret"]).post("/generate", json=BODY, headers=headers)
    assert response.status_code == 200
