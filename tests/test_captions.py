from __future__ import annotations

import dataclasses

import pytest

from chat.captions import left_out_caption, model_caption, progress_caption, stopped_caption, usage_caption
from chat.types import Progress, Usage
from tests.fakes import INFO


def test_a_model_is_named_with_its_device_and_window():
    assert model_caption(INFO) == "fake/model · cpu float32 · window 2,048 tokens"
    assert model_caption(dataclasses.replace(INFO, is_base=True)).endswith(" · base model")


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, "Waiting"),
        (Progress("loading", 1, 3, "Loading the weights"), "Loading the weights 33%"),
        (Progress("loading"), "Loading the model"),
        (Progress("queued", 1), "Waiting: next in line"),
        (Progress("queued", 3), "Waiting: number 3 in line"),
        (Progress("reading", 1200, 3400), "Reading 1,200 of 3,400 tokens"),
    ],
)
def test_progress_is_put_into_words(progress: Progress | None, words: str):
    assert progress_caption(progress) == words


def test_usage_tells_speed_and_context():
    usage = Usage(1200, 0, 45, 0.42, 12.34)
    assert usage_caption(usage, 2048) == "12.3 tokens/s · 45 tokens · first after 0.4 s · context 1,245 of 2,048"


def test_a_single_token_has_no_speed_and_some_windows_are_not_known():
    assert usage_caption(Usage(1200, 0, 1, 0.42, 0.0), 0) == "1 token · first after 0.4 s · context 1,201"


def test_what_was_left_out_is_counted():
    """C3"""
    assert left_out_caption(1) == "The oldest message no longer fits and was left out."
    assert left_out_caption(2) == "The 2 oldest messages no longer fit and were left out."


def test_what_was_stopped_says_when():
    assert stopped_caption(3.21) == "Stopped after 3.2 s"
