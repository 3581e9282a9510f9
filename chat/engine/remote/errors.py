"""What goes wrong with a server, in words that say what to do next."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from textwrap import shorten
from typing import Any

import httpx2

from chat.types import (
    ChatError,
    EngineUnavailable,
    GenerationFailed,
    InvalidRequest,
    ModelNotFound,
    PromptTooLong,
    QueueFull,
)

_WINDOW = re.compile(
    r"context[ _](length|size|window)|maximum (model |input )?length|max_(model_len|total_tokens|input_tokens)"
    r"|exceed_context|prompt is too long",
    re.IGNORECASE,
)
"""How servers say that prompt and reply do not fit into the window; there is no common code for it."""

_REPLY = re.compile(r"complet|output|max_(new_)?tokens", re.IGNORECASE)
_SYSTEM_ROLE = re.compile(r"system (role|message|prompt)", re.IGNORECASE)
_FOR_EVER = {"insufficient_quota", "billing_hard_limit_reached"}
"""Codes under which a server says "too many requests" and means that it wants to be paid."""


class KeyRefused(ChatError):
    """The server wants another key."""


class NothingThere(EngineUnavailable):
    """The server knows no such address."""


class Overloaded(QueueFull):
    """The server has too much to do; it may say in how many seconds to come again."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class WindowExceeded(PromptTooLong):
    """The server finds the prompt too long, or prompt and reply together if it `counts_reply`."""

    def __init__(self, reason: str) -> None:
        InvalidRequest.__init__(
            self,
            f"The message is too long for this model. Shorten it and send it again. The server says: {reason}",
            "messages",
        )
        self.counts_reply = bool(_REPLY.search(reason))


class ConnectionBroken(EngineUnavailable):
    """The server went away before it said anything."""

    def __init__(self) -> None:
        super().__init__("The server broke the connection off before it answered. Try again.")


class ReplyCut(GenerationFailed):
    """The reply broke off."""

    def __init__(self) -> None:
        super().__init__(
            "The connection to the server broke off in the middle of the reply. What came so far is kept: "
            "continue it or retry."
        )


def explain_response(response: httpx2.Response, body: Mapping[str, Any], host: str) -> ChatError:
    """Return the error for an answer that is no reply; `body` is what was asked, the response has been read."""
    status, (reason, code) = response.status_code, _read_reason(response)
    said = f" The server says: {reason}" if reason else ""
    if status in (401, 403):
        return KeyRefused(
            f"{host} refuses {'the key' if 'authorization' in response.request.headers else 'to answer without a key'} "
            f"({status}). Set the environment variable CHAT_ENGINE_KEY and start again."
        )
    if status == 402 or not _FOR_EVER.isdisjoint(code.split()):
        return EngineUnavailable(f"The account at {host} has no credit left. Top it up, or use another key.{said}")
    if status in (429, 503):
        return Overloaded(f"{host} is overloaded. Try again in a minute.{said}", _retry_after(response))
    if status // 100 == 3:
        return EngineUnavailable(f"{host} has moved to {response.headers.get('location')}. Correct --engine.")
    if status == 404:
        return _explain_missing(response, reason, body, host)
    if status in (502, 504):
        return EngineUnavailable(f"The server behind {host} does not answer ({status}). Start it, then try again.")
    if _WINDOW.search(f"{code} {reason}"):
        return WindowExceeded(reason)
    if status in (400, 413, 422):
        return InvalidRequest(f"{host} refuses the request: {reason or status}", _find_field(reason, body))
    return GenerationFailed(f"{host} failed with status {status}. Try again; its own log says more.{said}")


def explain_event(error: object) -> GenerationFailed:
    """Return the error for what a server reports inside a stream."""
    reason = error.get("message") if isinstance(error, dict) else error
    return GenerationFailed(f"The server failed while it wrote. Try again. It says: {_shorten(reason)}")


def explain_failure(error: httpx2.TransportError, host: str) -> ChatError:
    """Return the error for a connection that failed."""
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return EngineUnavailable(
            f"{host} does not answer: {_find_cause(error)}. Start the server there, or correct --engine; "
            "then try again."
        )
    if isinstance(error, httpx2.TimeoutException):
        return GenerationFailed(f"{host} has been silent for too long. Try again; its own log says more.")
    if isinstance(error, httpx2.SSEError):
        return GenerationFailed(f"{host} does not answer as OpenAI's API does: {error}")
    return ConnectionBroken()


def _explain_missing(response: httpx2.Response, reason: str, body: Mapping[str, Any], host: str) -> ChatError:
    if "model" in body and "model" in reason.lower():
        return ModelNotFound(f"{host} has no model {body.get('model')!r}. Name another with --model. It says: {reason}")
    return NothingThere(
        f"There is nothing at {host}{response.request.url.path}. Correct --engine: the address usually ends in /v1."
    )


def _read_reason(response: httpx2.Response) -> tuple[str, str]:
    """Return what the server says, and its code or type: the shapes are OpenAI's, FastAPI's and older ones."""
    try:
        body = response.json()
    except ValueError:
        return _shorten(response.text), ""
    if not isinstance(body, dict):
        return _shorten(body), ""
    error = body.get("error") or body
    if not isinstance(error, dict):
        return _shorten(error), ""
    reason = error.get("message") or error.get("detail") or ""
    return _shorten(reason), f"{error.get('code') or ''} {error.get('type') or ''}".strip()


def _shorten(reason: object) -> str:
    return shorten(str(reason), 500, placeholder=" ...")


def _find_field(reason: str, body: Mapping[str, Any]) -> str | None:
    """Return the field of `body` that the server speaks of, or "system" if it takes no such role."""
    named = (name for name in body if name not in _COMMON_WORDS and re.search(rf"\b{name}\b", reason))
    return next(named, "system" if _SYSTEM_ROLE.search(reason) else None)


_COMMON_WORDS = {"model", "messages", "prompt", "stream", "stop"}


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date."""
    value = response.headers.get("retry-after", "")
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _find_cause(error: BaseException) -> str:
    """Return the operating system's own words, which lie at the bottom."""
    words = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionError) and cause.errno:
            words = os.strerror(cause.errno)  # asyncio puts the address there instead
        elif isinstance(cause, OSError) and cause.strerror:
            words = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return words or "no connection in time"
