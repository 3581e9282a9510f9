from __future__ import annotations

import gradio as gr
import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from gradio.routes import App
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from tests.fakes import FakeEngine
from tests.web.sites import api_routes

ROUTES = [
    ("get", "/health"),
    ("post", "/generate"),
    ("post", "/v1/chat/completions"),
    ("post", "/v1/completions"),
    ("post", "/load_model"),
    ("get", "/v1/models"),
    ("get", "/v1/models/{name}"),
]
API = FastAPI(routes=api_routes(FakeEngine()))
schema = schemathesis.openapi.from_asgi("/openapi.json", API)


@schema.parametrize()
@hypothesis.settings(max_examples=25, deadline=None)
def test_no_request_makes_the_server_fail(case):
    hypothesis.assume("%0A" not in case.formatted_path)  # no route matches that, so the answer is not ours
    case.call_and_validate(
        base_url="http://127.0.0.1",
        checks=[not_a_server_error, content_type_conformance, response_schema_conformance],
    )


@pytest.fixture
def page():
    """The API inside Gradio's own app, as the page serves it."""
    with gr.Blocks() as blocks:
        gr.Textbox()
    app = App.create_app(blocks, app_kwargs={"routes": api_routes(FakeEngine())})
    return TestClient(app, "http://127.0.0.1")


def test_pages_openapi_shows_the_routes(page):
    paths = page.get("/openapi.json").json()["paths"]
    for method, path in ROUTES:
        assert "description" in paths[path][method]


@pytest.mark.parametrize("shape", ["GenerateRequest", "ChatRequest", "CompletionRequest"])
def test_openapi_has_examples_that_work(page, shape):
    schemas = page.get("/openapi.json").json()["components"]["schemas"]
    path = {"GenerateRequest": "/generate", "ChatRequest": "/v1/chat/completions"}.get(shape, "/v1/completions")
    (example,) = schemas[shape]["examples"]
    assert "Hello" in page.post(path, json=example).text


def test_errors_keep_openais_shape_inside_the_pages_app(page):
    assert page.post("/generate", json={}).json()["error"]["param"] == "text"
    assert page.post("/generate", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert page.post("/v1/chat/completions", json={"n": 2}).json()["error"]["type"] == "invalid_request_error"
