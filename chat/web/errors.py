"""Errors of the HTTP API: the status of each, OpenAI's body for it, and a route that answers with it."""

from __future__ import annotations

import json
import logging
import reprlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from chat.types import (
    ChatError,
    EngineUnavailable,
    GenerationFailed,
    InvalidRequest,
    ModelLoadError,
    OutOfMemory,
    PromptTooLong,
    QueueFull,
)
from chat.web.fields import MAX_BODY_BYTES
from chat.web.limits import TooMany
from chat.web.shapes import ErrorBody

log = logging.getLogger(__name__)


class UnknownModel(InvalidRequest):
    """The request is for another model."""


class BodyTooLarge(InvalidRequest):
    """The request has more bytes than anybody needs."""


class BadKey(ChatError):
    """The API key is missing or wrong."""


class Closed(ChatError):
    """The API is not open to this client."""


class Kind(NamedTuple):
    """How one kind of error is told to a client."""

    status: int
    type: str
    code: str | None = None
    headers: Mapping[str, str] | None = None


RETRY = {"Retry-After": "5"}
KINDS: Mapping[type, Kind] = {
    InvalidRequest: Kind(400, "invalid_request_error"),
    PromptTooLong: Kind(400, "invalid_request_error", "context_length_exceeded"),
    BadKey: Kind(401, "authentication_error", "invalid_api_key", {"WWW-Authenticate": "Bearer"}),
    Closed: Kind(403, "permission_error", "api_closed"),
    UnknownModel: Kind(404, "invalid_request_error", "model_not_found"),
    BodyTooLarge: Kind(413, "invalid_request_error", "request_too_large"),
    TooMany: Kind(429, "rate_limit_error", "rate_limit_exceeded"),
    ChatError: Kind(500, "server_error"),
    GenerationFailed: Kind(500, "server_error", "generation_failed"),
    EngineUnavailable: Kind(503, "server_error", "engine_unavailable", RETRY),
    ModelLoadError: Kind(503, "server_error", "model_not_loaded"),
    OutOfMemory: Kind(503, "server_error", "out_of_memory", RETRY),
    QueueFull: Kind(503, "server_error", "queue_full", RETRY),
}


class AsciiJSONResponse(JSONResponse):
    """JSON that no client and no proxy can read in a wrong charset."""

    def render(self, content: Any) -> bytes:
        """Escape everything that is not ASCII."""
        return json.dumps(content, separators=(",", ":")).encode()


class ApiRoute(APIRoute):
    """A route that limits the body and answers errors in OpenAI's shape, inside whatever app it is mounted."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler."""
        handle = super().get_route_handler()

        async def handle_or_explain(request: Request) -> Response:
            try:
                return await handle(Request(request.scope, limit_body(request.receive, MAX_BODY_BYTES)))
            except Exception as error:
                return error_response(as_chat_error(error))

        return handle_or_explain


def error_response(error: ChatError) -> Response:
    """Return the whole answer to a request that failed."""
    kind = _kind(error)
    headers = {"Retry-After": str(error.retry_s)} if isinstance(error, TooMany) else kind.headers
    return AsciiJSONResponse(error_body(error), kind.status, headers)


def error_body(error: ChatError) -> ErrorBody:
    """Return OpenAI's body for `error`; log it if it is not the client's fault."""
    kind = _kind(error)
    if kind.status >= 500:
        log.warning("%s", error)
    param = error.param if isinstance(error, InvalidRequest) else None
    return {"error": {"message": str(error), "type": kind.type, "param": param, "code": kind.code}}


def as_chat_error(error: Exception) -> ChatError:
    """Return `error` in words that are fit for a client."""
    if isinstance(error, ChatError):
        return error
    if isinstance(error, RequestValidationError):
        return _explain(error.errors())
    if isinstance(error, HTTPException):
        return _explain_unread(error)
    log.error("A request failed.", exc_info=error)
    return ChatError("The server made a mistake; its log says which. Try again.")


def _kind(error: ChatError) -> Kind:
    return next(KINDS[parent] for parent in type(error).__mro__ if parent in KINDS)


def _explain_unread(error: HTTPException) -> InvalidRequest:
    """Say why the body could not be read at all."""
    if error.status_code == 413:
        return BodyTooLarge(f"The request is too large: at most {MAX_BODY_BYTES:,} bytes are read. Shorten it.")
    return InvalidRequest("The body cannot be read as JSON in UTF-8.")


def _explain(errors: Sequence[Any]) -> InvalidRequest:
    """Say what is wrong with the first field at fault: several texts at once help nobody."""
    error = errors[0]
    field = _path(error["loc"][1:])
    if error["type"] == "json_invalid":
        return InvalidRequest(f"The body is not valid JSON: {error['ctx']['error']}.")
    if not field and error["type"] != "value_error":
        return InvalidRequest("The body must be a JSON object, sent with `Content-Type: application/json`.")
    reason = error.get("ctx", {}).get("error")
    texts = {
        "missing": f"{field} is missing.",
        "extra_forbidden": f"{field} is not supported by this server. Leave it out.",
        "value_error": f"{field}: {reason}." if field else f"{reason}.",
    }
    wrong = f"{field}: {reprlib.repr(error['input'])} is not allowed. {error['msg']}."
    return InvalidRequest(texts.get(error["type"], wrong), field or None)


def _path(location: Sequence[str | int]) -> str:
    """Write a place in the body as OpenAI does: messages[0].content."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def limit_body(receive: Receive, limit: int) -> Receive:
    """Refuse a body of more than `limit` bytes before it is all in memory."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413)  # the one kind of error that FastAPI lets through from here
        return message

    return receive_some
