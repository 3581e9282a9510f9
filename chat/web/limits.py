"""How much one address, and one message, may ask of the engine."""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Address

from chat.settings import Settings
from chat.types import ChatError, InvalidRequest, Prompt
from chat.web.rates import Rate

_MESSAGES_PER_MINUTE = 60
_REPLIES_PER_ADDRESS = 8
_LONGEST = 100  # characters that are kept of an address that is none


class TooMany(ChatError):
    """An address asks for too much at once; after `retry_s` seconds it may ask again."""

    def __init__(self, text: str, retry_s: int) -> None:
        super().__init__(text)
        self.retry_s = retry_s


class Limits:
    """What is counted for each address, over the page and the API together: whoever takes part shares one of these.

    Tabs cost nothing to open, so they do not count as visitors.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._messages = settings.messages_per_minute or _MESSAGES_PER_MINUTE
        self._replies = settings.replies_per_address or _REPLIES_PER_ADDRESS
        self._rate = Rate(self._messages, 60)
        self._answering: Counter[str] = Counter()
        self._lock = threading.Lock()

    def check(self, prompt: Prompt) -> None:
        """Raise InvalidRequest if a message, or the conversation, is longer than anybody needs."""
        # Nobody can shorten what the model has said, so it does not count.
        texts = [prompt] if isinstance(prompt, str) else [m["content"] for m in prompt if m["role"] != "assistant"]
        longest, most = max(map(len, texts), default=0), self._settings.message_length
        if longest > most:
            raise InvalidRequest(f"A message has {longest:,} characters, and may have {most:,}. Shorten it.")
        count, most = 1 if isinstance(prompt, str) else len(prompt), self._settings.history_length
        if count > most:
            raise InvalidRequest(f"The conversation has {count:,} messages, and may have {most:,}. Begin a new one.")

    @contextmanager
    def reply(self, address: str) -> Iterator[None]:
        """Count a reply to `address` while it is written. Raises: TooMany."""
        self._begin(address)
        try:
            yield
        finally:
            with self._lock:
                self._answering[address] -= 1
                if not self._answering[address]:
                    del self._answering[address]

    def _begin(self, address: str) -> None:
        is_here = _is_this_machine(address)
        with self._lock:
            if self._answering[address] >= self._replies and (self._settings.replies_per_address or not is_here):
                raise TooMany(
                    f"Replies to your address under way: {self._replies}, as many as there may be at once. "
                    "Stop one, or wait for its end.",
                    5,
                )
            if self._settings.messages_per_minute or not is_here:
                self._take(address)
            self._answering[address] += 1

    def _take(self, address: str) -> None:
        if wait := math.ceil(self._rate.take(address)):
            raise TooMany(
                f"Your address has sent {_count(self._messages, 'message')} in a minute, as many as it may. "
                f"Try again in {_count(wait, 'second')}.",
                wait,
            )


def address_of(client: Address | None) -> str:
    """Return who a request's client is; of an IPv6 address the half that one household shares.

    Behind a proxy that the server trusts it is the proxy's visitor: the server has read X-Forwarded-For already.
    """
    host = client.host if client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:_LONGEST]
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _is_this_machine(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
