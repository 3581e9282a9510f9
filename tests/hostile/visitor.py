"""A visitor of the hostile hour: who it is, and what it notes of each visit."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

KEY, LOGIN = "right", ("ann", "right")


class Unexpected(Exception):
    """The app did what it must not do."""


@dataclass
class Outages:
    """When the server behind the app was away."""

    GRACE_S = 5.0  # so long after an end its traces may still be met on a busy machine
    is_on: bool = False
    ended_at: float = float("-inf")
    count: int = 0

    def begin(self) -> None:
        self.is_on, self.count = True, self.count + 1

    def end(self) -> None:
        self.is_on, self.ended_at = False, time.monotonic()

    def touched(self, since: float) -> bool:
        """Whether the server was away at any time after `since`."""
        return self.is_on or self.ended_at + self.GRACE_S > since


@dataclass
class Visitor:
    """Somebody with an address and a random mind of their own."""

    url: str
    address: str
    mind: random.Random
    outages: Outages
    outcomes: Counter[str]
    cookies: httpx.Cookies | None = None
    surprises: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        """What a proxy on this machine would say of them."""
        return {"X-Forwarded-For": self.address}

    @property
    def authority(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        return url.host, url.port

    def connect(self, **headers: str) -> httpx.AsyncClient:
        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncClient(base_url=self.url, headers=self.headers | headers, timeout=90, limits=limits)

    def connect_with_key(self) -> httpx.AsyncClient:
        return self.connect(Authorization=f"Bearer {KEY}")

    def question(self, least: int = 5, most: int = 90) -> str:
        return f"Say {self.mind.randint(least, most)} words"

    def note(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def note_failure(self, what: str, began: float) -> None:
        """Note what only an outage of the server excuses. Raises: Unexpected if there was none since `began`."""
        if not self.outages.touched(began):
            raise Unexpected(what)
        self.note(f"{what} (server away)")

    def expect(self, response: httpx.Response, statuses: Iterable[int], name: str) -> None:
        """Note a refusal. Raises: Unexpected for any other status."""
        if response.status_code not in statuses:
            raise Unexpected(f"{name}: status {response.status_code} {response.text[:200]}")
        self.note(f"{name}: refused with {response.status_code}")
