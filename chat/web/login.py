"""The login of the page, which wrong passwords slow down."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from anyio import to_thread
from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chat.accounts import hash_password, matches
from chat.web.errors import limit_body
from chat.web.fields import MAX_BODY_BYTES
from chat.web.limits import address_of
from chat.web.rates import Rate

PATIENCE_S = 10.0
MAX_LENGTH = 200  # characters of a name or a password
_MOST_KNOWN = 1000
_OPEN = ("app_id", "login_check", "startup-events", "theme.css", "token", "user")
"""What Gradio's own routes say to who has not logged in: nothing but that, and how the page looks."""

_address: ContextVar[str] = ContextVar("address", default="")


class Login:
    """Checks names and passwords. A wrong one makes the next try from there, or for that name, wait.

    Waiting does not lock anybody out: a name can be tried from where it has logged in before, whatever
    others do with it.
    """

    def __init__(self, accounts: Mapping[str, str]) -> None:
        self._accounts = accounts
        self._nobody = hash_password(secrets.token_hex())
        self._by_address, self._by_name = Rate(5, 15), Rate(20, 40)
        self._known: dict[tuple[str, str], None] = {}
        # One at a time: a check takes 16 MiB and a core, and right passwords must not count because they come at once.
        self._turn = asyncio.Lock()

    async def check(self, name: str, password: str) -> bool:
        """Tell whether the password is right. Raises: HTTPException 429 after too many wrong ones."""
        if max(len(name), len(password)) > MAX_LENGTH:
            return False
        address = _address.get()
        rates = [(self._by_address, address)]
        if (name, address) not in self._known:
            rates.append((self._by_name, name))
        async with self._turn:
            wait = max(rate.take(key, PATIENCE_S) for rate, key in rates)
            if not wait:
                return await self._try(name, password, rates)
        if wait > PATIENCE_S:
            raise _too_many(math.ceil(wait - PATIENCE_S))
        await asyncio.sleep(wait)
        async with self._turn:
            return await self._try(name, password, rates)

    async def _try(self, name: str, password: str, rates: Sequence[tuple[Rate, str]]) -> bool:
        """Tell whether the password is right; if it is, the try does not count."""
        # A name that there is not takes as long as a wrong password.
        hashed = self._accounts.get(name, self._nobody)
        if not await to_thread.run_sync(matches, password, hashed):
            return False
        for rate, key in rates:
            rate.give_back(key)
        self._remember(name, _address.get())
        return True

    def _remember(self, name: str, address: str) -> None:
        self._known[name, address] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


class Doors:
    """Middleware of Gradio's app: no large body, and with a login none of Gradio's routes without it.

    Gradio asks for the login itself where an event begins, but not where one is stopped.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if not _may_pass(connection):
            await JSONResponse({"detail": "Log in first."}, 401)(scope, receive, send)
            return
        _address.set(address_of(connection.client))
        await self._app(scope, limit_body(receive, MAX_BODY_BYTES), send)


def _may_pass(connection: HTTPConnection) -> bool:
    _, is_gradio, route = connection.url.path.partition("/gradio_api/")
    return not is_gradio or connection.app.auth is None or route.rstrip("/") in _OPEN or _has_login(connection)


def _has_login(connection: HTTPConnection) -> bool:
    """Look where Gradio keeps its logins."""
    app = connection.app
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    return any(connection.cookies.get(name) in app.tokens for name in names)


def _too_many(seconds: int) -> HTTPException:
    text = f"There were too many wrong passwords. Try again in {seconds} seconds."
    return HTTPException(429, text, {"Retry-After": str(seconds)})
