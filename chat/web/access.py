"""Who may use the HTTP API."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from chat.settings import Settings
from chat.web.errors import BadKey, Closed

Guard: TypeAlias = Callable[..., None]
BEARER = HTTPBearer(auto_error=False, description="A key given to the server with --api-key.")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host")


def is_public(settings: Settings) -> bool:
    """Tell whether other machines can reach this server."""
    return settings.share or not _is_local(settings.host)


def is_open(settings: Settings) -> bool:
    """Tell whether the API answers at all: it needs a key once others can reach it, or the page has a login."""
    return bool(settings.api_key) or not (is_public(settings) or settings.has_login)


def create_guard(settings: Settings) -> Guard:
    """Return a dependency that lets a request pass, or raises BadKey or Closed."""
    keys = [key.get_secret_value().encode() for key in settings.api_key]

    def check_key(credentials: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]) -> None:
        given = credentials.credentials.encode("latin-1") if credentials else b""  # as headers are decoded
        # A sum looks at every key, so that the time it takes tells nothing.
        if not sum(hmac.compare_digest(given, key) for key in keys):
            raise BadKey("The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.")

    def check_local(request: Request) -> None:
        if not is_open(settings):
            raise Closed("The API is closed: other machines can reach this server, or its page has a login. " + _ADVICE)
        if not _comes_from_here(request):
            raise Closed("Without a key the API answers only this machine's own programs and pages. " + _ADVICE)

    return check_key if keys else check_local


_ADVICE = "Start it with --api-key KEY, or CHAT_API_KEY in the environment, and send `Authorization: Bearer KEY`."


def _comes_from_here(request: Request) -> bool:
    """Tell whether no other machine and no other site is behind a request to this machine.

    The Host header shows a foreign name that was pointed here (DNS rebinding), Origin another site's
    page, and the forwarding headers a proxy.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        name, own_page = urlsplit(f"//{host}").hostname, origin is None or urlsplit(origin).netloc == host
    except ValueError:
        return False
    return own_page and _is_local(name or "") and not any(header in request.headers for header in FORWARDED)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
