"""What one address may ask for, through every door."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from openai import OpenAI, RateLimitError
from starlette.datastructures import Address

from chat.settings import Settings
from chat.types import InvalidRequest
from chat.web.limits import Limits, TooMany, address_of
from tests.fakes import FakeEngine
from tests.web.sites import serve_site

AFAR, NEAR = "203.0.113.7", "127.0.0.1"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}


def limits(**settings: object) -> Limits:
    return Limits(Settings(**settings))


def fill(counted: Limits, address: str, tries: int) -> int:
    """Return how many of the replies are allowed to begin before any ends."""
    begun = 0
    with ExitStack() as replies, suppress(TooMany):
        for _ in range(tries):
            replies.enter_context(counted.reply(address))
            begun += 1
    return begun


def connect(url: str, address: str) -> Client:
    """A client of another machine, as a proxy on this one would tell of it."""
    return Client(url, headers={"X-Forwarded-For": address}, verbose=False, analytics_enabled=False)


def test_replies_at_once_are_counted_for_each_address_until_they_end():
    counted = limits(replies_per_address=2)
    with counted.reply(AFAR), counted.reply(AFAR):
        with pytest.raises(TooMany, match=r"under way: 2.*Stop one"), counted.reply(AFAR):
            pass
        with counted.reply("198.51.100.1"):
            pass
    with counted.reply(AFAR):
        pass
    assert not counted._answering


def test_messages_of_a_minute_are_counted_and_the_refusal_says_when_it_ends():
    counted = limits(messages_per_minute=3)
    for _ in range(3):
        with counted.reply(AFAR):
            pass
    with pytest.raises(TooMany, match=r"3 messages in a minute.*in 20 seconds") as refused, counted.reply(AFAR):
        pass
    assert refused.value.retry_s == 20
    assert not counted._answering


@pytest.mark.parametrize("address", [NEAR, "127.0.0.53", "::1"])
def test_this_machine_has_no_limit_unless_one_is_set(address):
    assert fill(limits(), address, 100) == 100
    assert fill(limits(), AFAR, 100) == 8
    assert fill(limits(replies_per_address=2), address, 100) == 2


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (Address("203.0.113.7", 1), "203.0.113.7"),
        (Address("::ffff:203.0.113.7", 1), "203.0.113.7"),
        (Address("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (Address("2001:db8:1:2:ffff::1", 1), "2001:db8:1:2::/64"),
        (Address("::1", 1), "::1"),
        (Address("testclient", 1), "testclient"),
        (None, ""),
    ],
)
def test_an_address_is_that_of_a_household(client, address):
    assert address_of(client) == address


def test_a_long_message_and_a_long_conversation_are_refused():
    counted = limits(message_length=5, history_length=2)
    message = {"role": "user", "content": "12345"}
    reply = {"role": "assistant", "content": "longer, as the model likes"}
    counted.check([message, reply])
    counted.check("12345")
    with pytest.raises(InvalidRequest, match=r"6 characters, and may have 5"):
        counted.check([message, {"role": "user", "content": "123456"}])
    with pytest.raises(InvalidRequest, match=r"6 characters"):
        counted.check("123456")
    with pytest.raises(InvalidRequest, match=r"3 messages, and may have 2.*new one"):
        counted.check([message] * 3)


def test_the_api_answers_429_with_the_time_to_wait():
    headers = {"X-Forwarded-For": AFAR, "Authorization": "Bearer key"}
    with serve_site(FakeEngine(), api_key=["key"], messages_per_minute=2) as (url, _):
        client = OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, default_headers=headers)
        for _ in range(2):
            client.chat.completions.create(model="", messages=CHAT["messages"])
        with pytest.raises(RateLimitError) as refused:
            client.chat.completions.create(model="", messages=CHAT["messages"])
        assert refused.value.code == "rate_limit_exceeded"
        assert 0 < int(refused.value.response.headers["Retry-After"]) <= 30
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=headers).status_code == 429
        elsewhere = headers | {"X-Forwarded-For": "198.51.100.1"}
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=elsewhere).status_code == 200


def test_who_claims_many_addresses_has_the_one_the_proxy_saw():
    counted = {"X-Forwarded-For": AFAR, "Authorization": "Bearer key"}
    with serve_site(FakeEngine(), api_key=["key"], messages_per_minute=1) as (url, _):
        codes = [
            httpx.post(
                f"{url}/generate",
                json={"text": "x"},
                headers=counted | {"X-Forwarded-For": f"192.0.2.{number}, {AFAR}"},
            ).status_code
            for number in range(3)
        ]
    assert codes == [200, 429, 429]


def test_fifty_tabs_of_one_visitor_leave_room_for_another():
    end = threading.Event()
    engine = FakeEngine([["On", end, " and on."]])
    with serve_site(engine, queue_size=100) as (url, _), httpx.Client(base_url=url, timeout=60) as tabs:
        call = "/gradio_api/call/chat"
        posts = [tabs.post(call, json={"data": ["Hi"]}, headers={"X-Forwarded-For": AFAR}) for _ in range(50)]
        other = connect(url, "198.51.100.1").submit("Hi", api_name="/chat")
        assert "On" in other
        end.set()
        ends = [tabs.get(f"{call}/{post.json()['event_id']}").text for post in posts]
    assert sum("event: complete" in text for text in ends) == 8
    assert sum("under way: 8" in text for text in ends) == 42
    assert len(engine.prompts) == 9


def test_replies_of_the_page_and_of_the_api_are_one_count():
    end = threading.Event()
    headers = {"X-Forwarded-For": AFAR, "Authorization": "Bearer key"}
    with serve_site(FakeEngine([["On", end, "."]]), api_key=["key"], replies_per_address=1) as (url, _):
        job = connect(url, AFAR).submit("Hi", api_name="/chat")
        next(text for text in job if text == "On")
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=headers).status_code == 429
        end.set()
        assert job.result() == "On."
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=headers).text == "On."


def test_messages_of_a_minute_are_one_count_for_the_page_and_the_api():
    headers = {"X-Forwarded-For": AFAR, "Authorization": "Bearer key"}
    with serve_site(FakeEngine(), api_key=["key"], messages_per_minute=2) as (url, _):
        page = connect(url, AFAR)
        page.predict("Hi", api_name="/chat")
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=headers).status_code == 200
        assert httpx.post(f"{url}/generate", json={"text": "Once"}, headers=headers).status_code == 429
        with pytest.raises(AppError, match="2 messages in a minute"):
            page.predict("Hi", api_name="/chat")


def test_a_client_that_leaves_gives_its_place_back():
    engine = FakeEngine([["On", threading.Event()]])
    with serve_site(engine, replies_per_address=1) as (url, _):
        while len(engine.prompts) < 3:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=CHAT) as response:
                said = next(text for text in response.iter_text() if "On" in text or "under way" in text)
            assert response.status_code == 429 or "On" in said


def test_the_endpoint_says_which_limit_it_is():
    with serve_site(FakeEngine(), message_length=10, messages_per_minute=1) as (url, _):
        client = Client(url, verbose=False, analytics_enabled=False)
        with pytest.raises(AppError, match="11 characters, and may have 10"):
            client.predict("Hello there", api_name="/chat")
        assert client.predict("Hello", api_name="/chat") == "Hello there."
        with pytest.raises(AppError, match=r"1 message in a minute.*Try again in \d+ second"):
            client.predict("Hello", api_name="/chat")
