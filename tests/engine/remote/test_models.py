from __future__ import annotations

from typing import Any

import pytest

from chat.engine.remote.models import choose_model, find_window
from chat.types import ModelNotFound


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 8192, "owned_by": "somebody"}, 8192),
        ({"meta": {"n_ctx_train": 131072, "n_ctx": 2048}}, 2048),
        ({"providers": [{"context_length": 32768}, {"provider": "silent"}, {"context_length": 16384}]}, 16384),
        ({"max_model_len": None, "meta": None, "providers": None}, 0),
        ({"meta": "?"}, 0),
        ({}, 0),
    ],
)
def test_the_window_is_found_where_each_server_writes_it(entry: dict[str, Any], window: int) -> None:
    assert find_window([{"id": "other", "max_model_len": 1}, {"id": "m", **entry}], "m") == window


def test_a_provider_may_follow_the_models_name() -> None:
    assert find_window([{"id": "a/b", "providers": [{"context_length": 9}]}], "a/b:fastest") == 9


def test_a_model_that_is_not_listed_has_no_known_window() -> None:
    assert find_window([{"id": "other", "max_model_len": 1}], "m") == 0


def test_only_the_first_of_many_models_are_named() -> None:
    with pytest.raises(ModelNotFound) as error:
        choose_model([{"id": f"m{n}"} for n in range(1000)], "host")
    assert len(str(error.value)) < 200


def test_an_empty_list_asks_for_a_name() -> None:
    with pytest.raises(ModelNotFound, match="no models"):
        choose_model([], "host")
