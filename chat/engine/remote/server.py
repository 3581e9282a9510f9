"""An OpenAI-compatible server, as far as a chat needs it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx2
from huggingface_hub import get_token

from chat.engine.remote.errors import explain_event, explain_failure, explain_response
from chat.settings import EngineSettings
from chat.types import ChatError

Event: TypeAlias = Mapping[str, Any]

_HUB = "https://router.huggingface.co/v1"
_CONNECT_S = 10.0
_SILENCE_S = 300.0  # a long prompt in a long line may take minutes before the first word
_DONE: Event = {"choices": [{"finish_reason": "stop"}]}
"""What OpenAI's end mark means to a server that gave no reason before it."""


def find_server(settings: EngineSettings) -> Server:
    """Return the server that the settings name; the hub's gets the token that the person is logged in with."""
    key = settings.engine_key.get_secret_value().strip()
    if settings.engine == "hub":
        return Server(_HUB, key or get_token() or "")
    return Server(settings.engine, key)


class Server:
    """The HTTP side of an engine; to be used on one event loop.

    huggingface_hub's own client is not used. In 2.4 it ends a reply at a U+2028 inside a word, sends the
    person's hub token to any server that needs no key, keeps every stream open until it is closed itself,
    and refuses local servers under HF_HUB_OFFLINE.
    """

    def __init__(self, url: str, key: str = "", silence_s: float = _SILENCE_S) -> None:
        """`url` ends in /v1. `silence_s` is how long to wait for the next sign of life."""
        self._url, self.key = url.rstrip("/"), key
        self._tokenizes = True
        self.host = httpx2.URL(url).netloc.decode()
        self._http = httpx2.AsyncClient(
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx2.Timeout(silence_s, connect=_CONNECT_S),
            # No connection is used twice: a server that closes an idle one would break the next request.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def models(self) -> list[dict[str, Any]]:
        """Return the entries of the server's list of models. Raises: ChatError."""
        with self._in_words():
            response = await self._http.get(f"{self._url}/models", timeout=_CONNECT_S)
            await self._check(response, {})
            return _read_list(response)

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what vLLM answers, with `count` in it; None if it refuses `body`, and from any other server."""
        if not self._tokenizes:
            return None
        with self._in_words():
            root = self._url.removesuffix("/v1")
            response = await self._http.post(f"{root}/tokenize", content=json.dumps(body))
        self._tokenizes = response.status_code not in (404, 405)
        answer = _read_json(response.text) if response.is_success else {}
        return answer if "count" in answer else None

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """Stream the events of a reply. Closing the generator, or cancelling its task, ends the connection.

        Raises: ChatError.
        """
        with self._in_words():
            # Escaped to ASCII, because half a surrogate pair has no UTF-8.
            async with self._http.stream("POST", f"{self._url}{path}", content=json.dumps(body)) as response:
                await self._check(response, body)
                async for event in httpx2.EventSource(response):
                    if event.data == "[DONE]":
                        yield _DONE
                        return
                    yield _read_json(event.data)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def _check(self, response: httpx2.Response, body: Mapping[str, Any]) -> None:
        if not response.is_success:
            await response.aread()
            raise explain_response(response, body, self.host)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            raise explain_failure(error, self.host) from error
        except ChatError as error:
            # Some servers quote the key that they refuse.
            error.args = tuple(str(arg).replace(self.key, "[key]") if self.key else arg for arg in error.args)
            raise


def _read_list(response: httpx2.Response) -> list[dict[str, Any]]:
    data = _read_json(response.text).get("data")
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _read_json(text: str) -> dict[str, Any]:
    """Return an object. Raises: GenerationFailed if `text` is anything else, as some errors are."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise explain_event(text)
    return value
