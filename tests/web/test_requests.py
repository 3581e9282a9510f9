from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from chat.types import GenerationParams
from tests.fakes import INFO, FakeEngine
from tests.web.sites import api_routes

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def client(engine):
    return TestClient(FastAPI(routes=api_routes(engine)), "http://127.0.0.1")


def post(client, path="/v1/chat/completions", **fields):
    if path == "/v1/chat/completions":
        fields = {"messages": MESSAGES} | fields
    return client.post(path, content=json.dumps(fields), headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({}, {}),
        ({"max_tokens": 5}, {"max_new_tokens": 5}),
        ({"max_completion_tokens": 5}, {"max_new_tokens": 5}),
        ({"temperature": 0, "top_p": 0.5, "top_k": 3}, {"temperature": 0, "top_p": 0.5, "top_k": 3}),
        ({"temperature": None, "seed": None, "stop": None}, {}),
        ({"seed": 7, "repetition_penalty": 1.1}, {"seed": 7, "repetition_penalty": 1.1}),
        ({"stop": "\n"}, {"stop": ("\n",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"generation_config": '{"max_new_tokens": 9, "top_k": 4}'}, {"max_new_tokens": 9, "top_k": 4}),
        ({"generation_config": '{"do_sample": false, "transformers_version": "5"}'}, {"temperature": 0}),
        ({"generation_config": '{"temperature": 2}', "temperature": 1}, {"temperature": 1}),
    ],
)
def test_fields_reach_the_engine(client, engine, fields, params):
    assert post(client, **fields).status_code == 200
    assert engine.params == [GenerationParams(**params)]


def test_raw_text_is_sampled_as_asked(client, engine):
    assert post(client, "/generate", text="Once", max_new_tokens=3, stop="x", seed=1).status_code == 200
    assert post(client, "/v1/completions", prompt="Once", max_tokens=3, stop="x", seed=1).status_code == 200
    assert engine.params == [GenerationParams(max_new_tokens=3, stop=("x",), seed=1)] * 2
    assert engine.prompts == ["Once"] * 2


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be brief."}),
        ({"role": "user", "content": "a", "name": "Ann"}, {"role": "user", "content": "a"}),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "a\nb"},
        ),
        ({"role": "assistant", "content": None, "tool_calls": None}, {"role": "assistant", "content": ""}),
        (
            {"role": "assistant", "content": "b", "reasoning_content": "a", "refusal": None, "annotations": []},
            {"role": "assistant", "content": "b", "thought": "a"},
        ),
        ({"role": "user", "content": "<b>\t\n  日本 🙂"}, {"role": "user", "content": "<b>\t\n  日本 🙂"}),
        ({"role": "user", "content": "half \ud83d"}, {"role": "user", "content": "half \ufffd"}),
    ],
)
def test_messages_reach_the_engine(client, engine, sent, read):
    """G5, G8: every shape in which clients write a message gives the same plain text."""
    assert post(client, messages=[sent]).status_code == 200
    assert engine.prompts == [[read]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("num_beams", 3),
        ("best_of", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("functions", [{}, {}]),
        ("response_format.type", "json_object"),
        ("logit_bias", {"50256": -100}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("modalities[0]", "audio"),
        ("reasoning_effort", "low"),
        ("max_new_tokens", 5),
        ("temperature", 9),
        ("temperature", "hot"),
        ("top_p", 0),
        ("seed", -1),
        ("max_tokens", 0),
        ("stop[0]", ""),
        ("stop", ["x"] * 17),
        ("unheard_of", 1),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client, engine, field, value):
    """S3"""
    outer, _, inner = field.partition(".")
    name = outer.removesuffix("[0]")
    response = post(client, **{name: {inner: value} if inner else [value] if name != outer else value})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == field
    assert field in error["message"]
    assert error["type"] == "invalid_request_error"
    assert engine.prompts == []


@pytest.mark.parametrize(
    ("path", "field", "fields"),
    [
        ("/v1/completions", "suffix", {"prompt": "a", "suffix": "b"}),
        ("/v1/completions", "echo", {"prompt": "a", "echo": True}),
        ("/v1/completions", "best_of", {"prompt": "a", "best_of": 3}),
        ("/v1/completions", "logprobs", {"prompt": "a", "logprobs": 3}),
        ("/v1/completions", "prompt", {"prompt": ["a", "b"]}),
        ("/v1/completions", "prompt", {}),
        ("/generate", "text", {}),
        ("/generate", "num_beams", {"text": "a", "num_beams": 3}),
        ("/generate", "max_tokens", {"text": "a", "max_tokens": 3}),
        ("/v1/chat/completions", "messages", {"messages": []}),
        ("/v1/chat/completions", "messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}),
        ("/v1/chat/completions", "messages[0]", {"messages": [{"role": "user"}]}),
        (
            "/v1/chat/completions",
            "messages[0].content[0].type",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        ),
    ],
)
def test_every_route_refuses_by_name(client, engine, path, field, fields):
    """S3"""
    response = post(client, path, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(field)
    assert engine.prompts == []


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "presence_penalty": 0.0, "frequency_penalty": 0, "logprobs": False},
        {"tools": [], "tool_choice": "none", "logit_bias": {}, "functions": None},
        {"response_format": {"type": "text"}, "modalities": ["text"], "service_tier": "auto"},
        {"user": "ann", "metadata": {"a": "b"}, "store": True, "parallel_tool_calls": False},
        {"model": "fake/model"},
        {"model": "model@main"},
        {"model": ""},
    ],
)
def test_what_changes_nothing_is_accepted(client, fields):
    assert post(client, **fields).status_code == 200


def test_name_without_an_owner_answers_to_any_owner(client, engine):
    engine.info = replace(INFO, name="model")
    assert post(client, model="owner/model").status_code == 200
    assert post(client, model="owner/other-model").status_code == 404


@pytest.mark.parametrize("name", ["gpt-4o", "other/model", "odel", "fake"])
def test_another_model_is_not_found(client, engine, name):
    response = post(client, model=name)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "fake/model" in response.json()["error"]["message"]
    assert engine.prompts == []


@pytest.mark.parametrize("config", ["{", "[1]", 3])
def test_generation_config_that_is_none_is_refused(client, config):
    response = post(client, generation_config=config)
    assert response.status_code == 400
    assert "generation_config" in response.json()["error"]["message"]


def test_stream_options_need_a_stream(client):
    assert post(client, stream_options={"include_usage": True}).status_code == 400
