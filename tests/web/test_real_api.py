"""The real program with the real default model, asked over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.real

PAGE_TOKENS = 32  # a batch shares whole pages
PARIS = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def url():
    """The address of a running `python app.py`, its model loaded."""
    command = [sys.executable, "-u", "app.py", "--port", "0"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as app:
        try:
            address = next(found[0].rstrip("/") for line in app.stdout if (found := re.search(r"http://\S+", line)))
            # Its answer ends when the model is ready.
            assert '"ready"' in httpx.post(address + "/load_model", json={}, timeout=280).text
            yield address
        finally:
            app.terminate()


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_official_client_streams_an_answer(client):
    stream = client.chat.completions.create(
        model="", messages=PARIS, stream=True, temperature=0, max_tokens=30, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert "Paris" in "".join(texts)
    assert len(texts) > 3
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens >= len(texts)


@pytest.mark.parametrize("limit", [1, 12])
def test_streamed_and_whole_reply_are_the_same(client, limit):
    """S7, C11"""
    asked = {"model": "", "messages": PARIS, "seed": 7, "temperature": 1, "max_tokens": limit}
    whole = client.chat.completions.create(**asked)
    *_, end = chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert end.choices[0].finish_reason == whole.choices[0].finish_reason


def test_next_turn_reads_only_what_is_new(client):
    """The cache of the first turn serves the second, also for a client that sends everything each time."""
    first = client.chat.completions.create(model="", messages=PARIS, temperature=0, max_tokens=20)
    turns = [*PARIS, first.choices[0].message, {"role": "user", "content": "And of Japan?"}]
    usage = client.chat.completions.create(model="", messages=turns, temperature=0, max_tokens=5).usage
    assert usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens - PAGE_TOKENS


def test_too_long_a_message_is_refused_before_any_byte(client):
    """C1"""
    messages = [{"role": "user", "content": "word " * 10_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="", messages=messages, stream=True)
    assert caught.value.code == "context_length_exceeded"


def test_stop_text_ends_the_reply(client):
    """S12"""
    whole = client.chat.completions.create(model="", messages=PARIS, temperature=0, stop=" Paris")
    assert whole.choices[0].message.content.endswith("is")
    assert whole.choices[0].finish_reason == "stop"


def test_text_is_continued_as_it_stands(url, client):
    body = {"text": "One, two, three, four,", "max_new_tokens": 8, "temperature": 0}
    with httpx.stream("POST", url + "/generate", json=body, timeout=120) as response:
        pieces = list(response.iter_text())
    assert "five" in "".join(pieces)
    assert len(pieces) > 1
    completion = client.completions.create(model="", prompt=body["text"], max_tokens=8, temperature=0)
    assert completion.choices[0].text == "".join(pieces)


def test_beams_are_refused(url):
    """S3"""
    response = httpx.post(url + "/v1/chat/completions", json={"messages": PARIS, "num_beams": 3})
    assert response.status_code == 400


@pytest.mark.browser
def test_stream_page_continues_and_stops(browser, url):
    """T5, H2"""
    page = browser.new_page(viewport={"width": 390, "height": 700})
    page.goto(url + "/stream")
    asked = "日本語と🙂👩‍👩‍👧: "
    page.get_by_role("textbox").fill(asked)
    page.get_by_role("button", name="Continue").click()
    reply, lengths = page.locator("#reply"), set[int]()
    while len(lengths) < 4:
        lengths.add(len(reply.text_content()))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Continue")).to_be_enabled()
    stopped = reply.text_content()
    assert stopped.startswith(asked)
    assert "\ufffd" not in stopped
    # The engine is free again: the next text is answered, and nothing of the first one follows.
    page.get_by_role("textbox").fill("One, two, three,")
    page.get_by_role("button", name="Continue").click()
    expect(reply).to_have_text(re.compile(r"One, two, three,.+"))
    page.close()
