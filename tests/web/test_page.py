"""The page through its endpoint, and what it is made of; the browser's view of it is in test_browser.py."""

from __future__ import annotations

import threading

import gradio as gr
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from chat.types import GenerationFailed
from chat.web import keeping, page, view
from tests.fakes import FakeEngine
from tests.web.pages import build_page, free_port, serve_page


def connect(url):
    return Client(url, verbose=False, analytics_enabled=False)


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # importing Gradio leaves event loops open
def test_it_builds_without_a_warning():
    """G7"""
    build_page(FakeEngine())


def test_the_endpoint_streams_a_growing_reply(url, engine):
    """G14: each text is longer, and the last is whole."""
    rest = threading.Event()
    engine.replies = [["One", rest, " two", " three"]]
    job = connect(url).submit("Count", api_name="/chat")
    texts = []
    for text in job:
        texts.append(text)
        if text == "One":
            rest.set()
    assert texts[-1] == "One two three"
    assert "One" in texts
    assert texts == sorted(texts, key=len)


def test_a_fast_stream_arrives_whole(url, engine):
    """G14"""
    engine.replies = [["word "] * 2000]
    assert connect(url).predict("Go", api_name="/chat") == "word " * 2000


def test_each_client_has_a_conversation_of_its_own(url, engine):
    """G9: it goes on from call to call."""
    engine.replies = [["One."], ["Two."], ["Three."]]
    first, second = connect(url), connect(url)
    first.predict("I am A", api_name="/chat")
    second.predict("I am B", api_name="/chat")
    first.predict("And now?", api_name="/chat")
    assert [message["content"] for message in engine.prompts[1]] == ["I am B"]
    assert [message["content"] for message in engine.prompts[2]] == ["I am A", "One.", "And now?"]


def test_the_system_prompt_setting_reaches_the_engine():
    engine = FakeEngine()
    with serve_page(engine, system_prompt="Be brief.") as url:
        connect(url).predict("Hi", api_name="/chat")
    assert engine.prompts[0][0] == {"role": "system", "content": "Be brief."}


def test_the_endpoint_says_what_went_wrong_and_goes_on(url, engine):
    """S1, S2"""
    engine.replies = [["Half", GenerationFailed("Try again.")], ["Whole."]]
    client = connect(url)
    with pytest.raises(AppError, match="Try again"):
        client.predict("Hi", api_name="/chat")
    with pytest.raises(AppError, match="Write something first"):
        client.predict(" ", api_name="/chat")
    assert client.predict("Again", api_name="/chat") == "Whole."


def test_a_cancelled_job_stops_the_engine_and_keeps_the_text(url, engine):
    """T1, T3: the partial reply is part of the conversation."""
    engine.replies = [["Half", threading.Event()], ["Whole."]]
    client = connect(url)
    job = client.submit("Hi", api_name="/chat")
    next(text for text in job if text == "Half")
    job.cancel()
    client.predict("And now?", api_name="/chat")
    assert engine.closed == [0]
    assert [message["content"] for message in engine.prompts[1]] == ["Hi", "Half", "And now?"]


def test_two_messages_at_once_are_not_mixed(url, engine):
    """G20"""
    end = threading.Event()
    engine.replies = [["One", end, "."]]
    client = connect(url)
    job = client.submit("First", api_name="/chat")
    next(text for text in job if text == "One")
    with pytest.raises(AppError, match="still being written"):
        client.predict("Second", api_name="/chat")
    end.set()
    assert job.result() == "One."


def test_only_the_chat_is_an_endpoint(url):
    endpoints = connect(url).view_api(return_format="dict")["named_endpoints"]
    assert list(endpoints) == ["/chat"]
    assert [parameter["parameter_name"] for parameter in endpoints["/chat"]["parameters"]] == ["message"]


@pytest.fixture(scope="module")
def config():
    return build_page(FakeEngine(), title="Mine", queue_size=5).get_config_file()


def props(config, name):
    return next(part["props"] for part in config["components"] if part["props"].get("elem_id") == name)


def test_html_stays_sanitized_and_a_single_dollar_is_money(config):
    """G4, G6"""
    chat = props(config, "chat")
    assert chat["sanitize_html"] is True
    assert [delimiter["left"] for delimiter in chat["latex_delimiters"]] == ["$$", r"\[", r"\("]
    assert chat["autoscroll"] is True


def test_the_title_is_the_pages_and_the_tabs(config):
    assert config["title"] == "Mine"
    assert props(config, "heading")["value"] == "<h1>Mine</h1>"


def test_what_takes_long_can_be_stopped_and_its_stop_waits_for_nothing(config):
    """T2, T8, G18"""
    events = {event["api_name"]: event for event in config["dependencies"]}
    for name in ("submit", "pick", "retry", "edit", "go_on", "complete", "chat"):
        assert events[name]["types"]["generator"]
        assert events[name]["queue"]
    assert events["stop"]["queue"] is False
    assert events["watch"]["queue"] is False


def test_visitors_wait_in_the_engines_line_and_not_in_gradios():
    """G18, H5"""
    queue = build_page(FakeEngine(), queue_size=5)._queue
    assert (queue.max_size, queue.default_concurrency_limit) == (5, None)


def test_what_is_kept_of_pages_is_bounded(monkeypatch):
    """G11: Gradio frees a page's state an hour after it has left, and the rest of it never."""
    monkeypatch.setattr(page, "_MOST_PAGES", 2)
    built = build_page(FakeEngine())
    try:
        app, url, _ = built.launch(prevent_thread_lock=True, quiet=True, server_port=free_port())
        for _ in range(3):
            connect(url).predict("Hi", api_name="/chat")
        assert len(app.state_holder.session_data) == 2
        assert built._queue.cached_event_analytics_summary == {"functions": {}}
    finally:
        built.close()


def test_a_history_is_plain_data():
    """G10: it is copied for each visitor, and kept as JSON by the browser."""
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<b>", "finish_reason": "length"}]
    assert keeping.restore(keeping.keep(history)) == (history, view.show(history))


@pytest.mark.parametrize("kept", [None, "", "[", "{}", '[{"role": "user"}]', '[{"role": "boss", "content": "x"}]'])
def test_what_is_not_a_history_is_not_restored(kept):
    """G11"""
    assert keeping.restore(kept) == (gr.skip(), gr.skip())
