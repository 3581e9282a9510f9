from __future__ import annotations

import json

from fastapi import FastAPI
from fastapi.testclient import TestClient

from chat.types import ModelNotFound, Progress, Status
from tests.fakes import INFO, FakeEngine
from tests.web.sites import api_routes

LOADING = Status("loading", progress=Progress("loading", 30, 90, "Downloading"))
FAILED = Status("failed", error=ModelNotFound("There is no such model."))


class Loading(FakeEngine):
    """Says one status after the other, the last one again after that."""

    def __init__(self, *statuses: Status) -> None:
        super().__init__()
        self.statuses = list(statuses)

    def status(self) -> Status:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def client(*statuses: Status) -> TestClient:
    return TestClient(FastAPI(routes=api_routes(Loading(*statuses))), "http://127.0.0.1")


def load_model(*statuses: Status):
    lines = client(*statuses).post("/load_model", json={"model": "any/name"}).text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def test_progress_is_streamed_until_the_model_is_ready():
    assert load_model(LOADING, Status("loading"), LOADING, Status("ready", info=INFO)) == [
        {"status": "loading", "stage": "download"},
        {"status": "loading", "stage": "download", "progress": {"current": 30, "total": 90}},
        {"status": "ready", "cached": True},
    ]


def test_failure_to_load_is_told():
    assert load_model(FAILED) == [{"status": "error", "message": "There is no such model."}]


def test_health_tells_the_state():
    ready, loading, failed = (client(status).get("/health") for status in (Status("ready", info=INFO), LOADING, FAILED))
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "model": "fake/model"})
    assert (loading.status_code, loading.json()) == (
        503,
        {"status": "loading", "progress": {"text": "Downloading", "done": 30, "total": 90}},
    )
    assert (failed.status_code, failed.json()) == (503, {"status": "failed", "error": "There is no such model."})


def test_models_are_listed_once_loaded():
    assert client(LOADING).get("/v1/models").json() == {"object": "list", "data": []}
    assert client(LOADING).get("/v1/models/fake/model").status_code == 503
    ready = client(Status("ready", info=INFO))
    (model,) = ready.get("/v1/models").json()["data"]
    assert model["id"] == "fake/model"
    assert model["max_model_len"] == 2048
    assert ready.get("/v1/models/fake/model").json() == model
    assert ready.get("/v1/models/other").status_code == 404
