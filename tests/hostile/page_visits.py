"""What visitors do to the page, in the words in which Gradio's own script talks to its server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx

from tests.hostile.rude_visits import dial
from tests.hostile.visitor import LOGIN, Unexpected, Visitor

Message: TypeAlias = dict[str, Any]
PANEL = [""] * 7
SAID, STATUS = 2, 3  # places among the outputs of a turn
ENDLESS = "Say 4000 words"
BUSY = "still being written"


@dataclass
class Tab:
    """A page that is open in a browser."""

    http: httpx.AsyncClient
    session: str
    functions: dict[str, int] = field(default_factory=dict)

    async def send(self, function: str, *data: object) -> str:
        """Begin an event; return its id."""
        body = {"data": data, "fn_index": self.functions[function], "session_hash": self.session}
        response = await self.http.post("/gradio_api/queue/join", json=body)
        if response.status_code != 200:
            raise Unexpected(f"page: queue/join {response.status_code} {response.text[:200]}")
        return response.json()["event_id"]

    async def ask(self, question: str) -> str:
        return await self.send("submit", question, None, *PANEL)

    async def listen(self) -> AsyncIterator[Message]:
        """Yield what the server says, until all events have ended."""
        params = {"session_hash": self.session}
        async with self.http.stream("GET", "/gradio_api/queue/data", params=params) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    message = json.loads(line.removeprefix("data: "))
                    if message["msg"] == "close_stream":
                        return
                    yield message

    async def hear_end(self) -> Message:
        """Return how the one event that runs ends."""
        return [message async for message in self.listen()][-1]

    async def restore(self, kept: str | None) -> None:
        await self.run("restore", kept)

    async def run(self, function: str, *data: object) -> None:
        """Run what does not wait in Gradio's line."""
        body = {"data": data, "fn_index": self.functions[function], "session_hash": self.session}
        (await self.http.post("/gradio_api/run/predict", json=body)).raise_for_status()

    async def beat(self) -> None:
        """Show that the tab is open, until cancelled."""
        with suppress(httpx.TransportError):
            async with self.http.stream("GET", f"/gradio_api/heartbeat/{self.session}", timeout=None) as response:
                async for _ in response.aiter_raw():
                    pass


@asynccontextmanager
async def open_tab(visitor: Visitor) -> AsyncIterator[Tab]:
    """Open the page, the first time with a login. Closing it ends all its connections at once."""
    async with visitor.connect() as http:
        await log_in(visitor, http)
        tab = Tab(http, f"{visitor.mind.getrandbits(60):x}")
        page = await http.get("/")
        page.raise_for_status()
        config = (await http.get("/config")).json()
        tab.functions = read_functions(config)
        beating = asyncio.create_task(tab.beat())
        await tab.run("watch", "")
        await tab.restore(None)
        try:
            yield tab
        finally:
            beating.cancel()
            await asyncio.wait([beating])


def read_functions(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of the page's events."""
    return {one["api_name"]: one["id"] for one in config["dependencies"]}


async def log_in(visitor: Visitor, http: httpx.AsyncClient) -> None:
    if visitor.cookies:
        http.cookies = visitor.cookies
        return
    response = await http.post("/login", data=dict(zip(("username", "password"), LOGIN, strict=True)))
    if response.status_code != 200:
        raise Unexpected(f"login: status {response.status_code} {response.text[:200]}")
    visitor.cookies = http.cookies


def said(message: Message) -> list[Message]:
    return message["output"]["data"][SAID]


def has_failed(visitor: Visitor, end: Message, began: float) -> bool:
    """Tell whether the event failed, and note it. Raises: Unexpected if nothing excuses that."""
    if error := error_of(end):
        visitor.note_failure(f"page: {shorten(error)}", began)
    return bool(error)


def error_of(message: Message) -> str:
    return "" if message["success"] else str(message["output"].get("error"))


async def looks_in(visitor: Visitor) -> None:
    async with open_tab(visitor):
        pass


async def talks(visitor: Visitor) -> None:
    """Some questions after each other; what was said before stays, whatever the server behind does."""
    async with open_tab(visitor) as tab:
        for _ in range(visitor.mind.randint(1, 3)):
            began = time.monotonic()
            await tab.ask(visitor.question())
            end = await tab.hear_end()
            if has_failed(visitor, end, began):
                continue
            if said(end)[-1]["role"] != "assistant" or not said(end)[-1]["content"][0]["text"]:
                raise Unexpected(f"page: no reply in {said(end)}")
            visitor.note("page: reply finished")


async def stops(visitor: Visitor) -> None:
    """The reply ends with what it has, and the next question is answered."""
    began = time.monotonic()
    async with open_tab(visitor) as tab:
        await tab.ask(ENDLESS)
        left, last = visitor.mind.randint(1, 20), None
        async for message in tab.listen():
            last, left = message, left - (message["msg"] == "process_generating")
            if left == 0:
                await tab.run("stop")
        if has_failed(visitor, last, began):
            return
        if "Stopped" not in last["output"]["data"][STATUS]:
            raise Unexpected(f"page: not stopped: {last}")
        visitor.note("page: reply stopped")
        await tab.ask("Say 3 words")
        if not has_failed(visitor, await tab.hear_end(), began):
            visitor.note("page: reply finished")


async def reloads_in_mid_reply(visitor: Visitor) -> None:
    began = time.monotonic()
    async with open_tab(visitor) as tab:
        await tab.ask(ENDLESS)
        async with aclosing(tab.listen()) as messages:
            for _ in range(visitor.mind.randint(0, 15)):
                await anext(messages, None)
    visitor.note("page: left in mid-reply")
    kept = json.dumps([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    async with open_tab(visitor) as tab:
        await tab.restore(kept)
        await tab.ask(visitor.question())
        end = await tab.hear_end()
        if has_failed(visitor, end, began):
            return
        if len(said(end)) != 4:
            raise Unexpected(f"page: the conversation was not restored: {said(end)}")
        visitor.note("page: reply finished after a reload")


async def sends_twice(visitor: Visitor) -> None:
    """A second message during a reply is refused, and the reply goes on."""
    began, second, ends = time.monotonic(), "", {}
    async with open_tab(visitor) as tab:
        first = await tab.ask(ENDLESS)
        async for message in tab.listen():
            if message["msg"] == "process_generating" and not second:
                second = await tab.ask("Say 2 words")
            if message["msg"] == "process_completed":
                ends[message["event_id"]] = error_of(message)
                await tab.run("stop")
    if error := ends[first]:
        visitor.note_failure(f"page: {shorten(error)}", began)
    elif BUSY in ends.get(second, ""):
        visitor.note("page: second message refused")
    else:
        raise Unexpected(f"page: second message not refused: {ends}")


async def asks_and_never_listens(visitor: Visitor) -> None:
    async with open_tab(visitor) as tab:
        await tab.ask("Say 60 words")
        await asyncio.sleep(visitor.mind.uniform(0, 2))
    visitor.note("page: asked and never listened")


async def uses_the_endpoint_and_never_listens(visitor: Visitor) -> None:
    async with visitor.connect() as http:
        await log_in(visitor, http)
        (await http.post("/gradio_api/call/chat", json={"data": ["Say 60 words"]})).raise_for_status()
    visitor.note("page: asked the endpoint and never listened")


async def listens_slowly(visitor: Visitor) -> None:
    loop = asyncio.get_running_loop()
    async with open_tab(visitor) as tab:
        await tab.ask("Say 300 words")
        cookies = "; ".join(f"{name}={value}" for name, value in tab.http.cookies.items())
        async with dial(visitor) as line:
            path = f"/gradio_api/queue/data?session_hash={tab.session}"
            lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Cookie: {cookies}", "", ""]
            await loop.sock_sendall(line, "\r\n".join(lines).encode())
            for _ in range(visitor.mind.randint(2, 12)):
                await asyncio.wait_for(loop.sock_recv(line, 20), 90)
                await asyncio.sleep(1)
    visitor.note("page: listened slowly")


async def is_not_logged_in(visitor: Visitor) -> None:
    async with visitor.connect() as http:
        response = await http.post("/gradio_api/queue/join", json={"data": [], "fn_index": 0, "session_hash": "x"})
    visitor.expect(response, (401,), "no login")


def shorten(error: str) -> str:
    return error.split(":")[0][:60]
