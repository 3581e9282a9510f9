"""What visitors do to the HTTP API."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx

from tests.hostile.visitor import Unexpected, Visitor

CHAT = "/v1/chat/completions"
TOO_MUCH = 9 * 2**20


def chat(question: str, stream: bool = True) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], "stream": stream}


async def reads_a_reply(visitor: Visitor) -> None:
    began = time.monotonic()
    async with visitor.connect_with_key() as http, http.stream("POST", CHAT, json=chat(visitor.question())) as response:
        if response.status_code != 200:
            await response.aread()
            visitor.note_failure(f"api: {response.json()['error']['code']}", began)
            return
        events = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]
    if events[-1:] != ["[DONE]"]:
        raise Unexpected("api: a stream without its end")
    if error := json.loads(events[-2]).get("error"):
        visitor.note_failure(f"api: reply cut, {error['code']}", began)
    else:
        visitor.note("api: reply finished")


async def takes_a_whole_reply(visitor: Visitor) -> None:
    began = time.monotonic()
    async with visitor.connect_with_key() as http:
        response = await http.post(CHAT, json=chat(visitor.question(1, 40), stream=False))
    if response.status_code == 200:
        visitor.note("api: reply finished")
    else:
        visitor.note_failure(f"api: {response.json()['error']['code']}", began)


async def leaves_in_mid_reply(visitor: Visitor) -> None:
    async with visitor.connect_with_key() as http, http.stream("POST", CHAT, json=chat("Say 400 words")) as response:
        pieces = response.aiter_raw()
        for _ in range(visitor.mind.randint(0, 20)):
            await anext(pieces, None)
    visitor.note("api: left in mid-reply")


async def leaves_before_the_first_word(visitor: Visitor) -> None:
    async with visitor.connect_with_key() as http:
        asking = asyncio.ensure_future(http.post(CHAT, json=chat("Say 400 words", stream=False)))
        await asyncio.sleep(visitor.mind.uniform(0, 1))
        asking.cancel()
        await asyncio.wait([asking])
    visitor.note("api: left before the first word")


async def sends_too_much(visitor: Visitor) -> None:
    """With its length told, or piece by piece; the server need not read it to the end."""
    path = visitor.mind.choice([CHAT, "/generate", "/gradio_api/queue/join", "/login"])

    async def pieces() -> Any:
        for _ in range(TOO_MUCH // 2**16):
            yield b"x" * 2**16

    content = visitor.mind.choice([b"x" * TOO_MUCH, pieces()])
    async with visitor.connect_with_key() as http:
        try:
            response = await http.post(path, content=content, headers={"Content-Type": "application/json"})
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            visitor.note("too large a body: connection closed")
            return
    visitor.expect(response, (400, 401, 413, 422), "too large a body")


async def has_a_wrong_key(visitor: Visitor) -> None:
    wrong = visitor.mind.choice(["", "Bearer wrong", "Basic x", "Bearer righ", "Bearer right right"])
    async with visitor.connect(Authorization=wrong) as http:
        response = await http.post(CHAT, json=chat("Say 10 words"))
    visitor.expect(response, (401,), "wrong key")


async def has_a_wrong_password(visitor: Visitor) -> None:
    async with visitor.connect() as http:
        http.headers["X-Forwarded-For"] = "203.0.113.9"
        response = await http.post("/login", data={"username": "ann", "password": f"{visitor.mind.random()}"})
    visitor.expect(response, (400, 429), "wrong password")


async def sends_nonsense(visitor: Visitor) -> None:
    nonsense = [b"{", b"\xff", b"[]", b'{"messages": []}', b'{"messages": [{"role": "user", "content": "x"}], "n": 9}']
    async with visitor.connect_with_key() as http:
        response = await http.post(
            CHAT, content=visitor.mind.choice(nonsense), headers={"Content-Type": "application/json"}
        )
    visitor.expect(response, (400,), "nonsense")


async def asks_too_often(visitor: Visitor) -> None:
    """All from one address: as many as may get their replies, the others are told to wait."""
    began = time.monotonic()
    async with visitor.connect_with_key() as http:
        http.headers["X-Forwarded-For"] = "203.0.113.7"
        posts = (http.post(CHAT, json=chat("Say 15 words", stream=False)) for _ in range(12))
        responses = await asyncio.gather(*posts)
    if all(response.status_code == 200 for response in responses):
        raise Unexpected("too many at once: nobody was refused")
    for response in responses:
        if response.status_code == 429 and response.headers["Retry-After"]:
            visitor.note("too many at once: refused with 429")
        elif response.status_code == 200:
            visitor.note("api: reply finished")
        else:
            visitor.note_failure(f"api: {response.json()['error']['code']}", began)
