"""The HTTP API: the engine over plain text and in OpenAI's shapes, on the page's own server."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from chat.settings import Settings
from chat.types import Chunk, Engine, GenerationParams, ModelInfo, ModelLoadError, Prompt, Status
from chat.web.access import create_guard, is_open
from chat.web.errors import ApiRoute, AsciiJSONResponse, UnknownModel
from chat.web.limits import Limits, address_of
from chat.web.loading import LoadRequest, watch_loading
from chat.web.replies import ChatWriter, TextWriter, Writer
from chat.web.requests import ChatRequest, CompletionRequest, GenerateRequest, OpenAIRequest
from chat.web.shapes import ChatCompletion, Completion, ErrorBody, Health, Model, ModelList
from chat.web.streams import (
    HEADERS,
    PING_S,
    Chunks,
    StreamedReply,
    event_data,
    join,
    prime,
    pull,
    write_events,
    write_text,
)

SPARE_THREADS = 8
CLIENT_LEFT = 499  # seen in the log only
STREAM_PAGE = Path(__file__).with_name("stream.html")
log = logging.getLogger(__name__)

Documents: TypeAlias = dict[int | str, dict[str, Any]]
ERRORS: Documents = {"default": {"model": ErrorBody, "description": "What is wrong, and what to do about it."}}
TEXT = {"text/plain": {"schema": {"type": "string"}}}
EVENTS = {"text/event-stream": {"schema": {"type": "object", "properties": {"data": {"type": "string"}}}}}


def create_api(engine: Engine, settings: Settings, limits: Limits) -> APIRouter:
    """Return the routes that answer with `engine`. Their errors are their own, whatever app serves them."""
    if not is_open(settings):
        log.warning("The HTTP API is closed. Set --api-key to open it.")
    api = Api(engine, settings, limits)
    router = APIRouter(route_class=ApiRoute, default_response_class=Response)
    guarded: dict[str, Any] = {"dependencies": [Depends(create_guard(settings))], "tags": ["generation"]}
    router.get("/health", responses={200: {"model": Health}, 503: {"model": Health}}, tags=["status"])(api.health)
    router.get("/stream", include_in_schema=False)(stream_page)
    router.post("/generate", responses=_content(TEXT), **guarded)(api.generate)
    router.post("/v1/chat/completions", responses=_content(EVENTS, ChatCompletion), **guarded)(api.chat_completions)
    router.post("/v1/completions", responses=_content(EVENTS, Completion), **guarded)(api.completions)
    router.post("/load_model", responses=_content(EVENTS), **guarded)(api.load_model)
    router.get("/v1/models", responses=_content({}, ModelList), **guarded)(api.models)
    router.get("/v1/models/{name:path}", responses=_content({}, Model), **guarded)(api.model)
    return router


class Api:
    """The routes' functions. They keep no conversation: clients send the whole of it each time."""

    def __init__(self, engine: Engine, settings: Settings, limits: Limits) -> None:
        self._engine, self._limits = engine, limits
        self._started_at = int(time.time())
        self._known: ModelInfo | None = None
        # A thread waits for each stream's chunks; in the event loop's common pool of 40 they would
        # hold up the page. Everybody who may wait in line has one, and those who are being answered.
        self._threads = CapacityLimiter(settings.queue_size + SPARE_THREADS)

    async def health(self) -> Response:
        """Tell whether the model is loading, ready or failed; never waits."""
        status = self._engine.status()
        return AsciiJSONResponse(_describe_health(status), 200 if status.state == "ready" else 503)

    async def generate(self, request: Request, body: GenerateRequest) -> Response:
        """Continue a text, without a chat template; the reply is plain text that comes as it grows."""
        chunks = self._ask(request, body.text, body.params())
        text = write_text(await prime(chunks))
        return StreamedReply(text, "text/plain", chunks)

    async def chat_completions(self, request: Request, body: ChatRequest) -> Response:
        """Answer a conversation, as OpenAI's route of this name; a thought is `reasoning_content`."""
        return await self._reply(request, body, body.conversation(), ChatWriter)

    async def completions(self, request: Request, body: CompletionRequest) -> Response:
        """Continue a text, without a chat template, as OpenAI's route of this name."""
        return await self._reply(request, body, body.prompt[0], TextWriter)

    async def load_model(self, body: LoadRequest) -> Response:
        """Stream the progress of loading until the model can answer; `transformers chat` begins with this."""
        self._check_model(body.model)
        events = (event_data(event) async for event in watch_loading(self._engine))
        return StreamingResponse(events, headers=HEADERS, media_type="text/event-stream")

    async def models(self) -> Response:
        """List the model, or nothing while it loads."""
        info = self._engine.status().info
        return AsciiJSONResponse({"object": "list", "data": [self._describe(info)] if info else []})

    async def model(self, name: str) -> Response:
        """Describe the model."""
        self._check_model(name)
        return AsciiJSONResponse(self._describe(self._info()))

    async def _reply(self, request: Request, body: OpenAIRequest, prompt: Prompt, kind: type[Writer]) -> Response:
        self._check_model(body.model)
        writer = kind(self._info, body.stream_options.include_usage)
        chunks = self._ask(request, prompt, body.params())
        if body.stream:
            return StreamedReply(write_events(await prime(chunks, PING_S), writer), "text/event-stream", chunks)
        reply = await join(chunks)
        return AsciiJSONResponse(writer.whole(reply)) if reply.finish_reason else Response(status_code=CLIENT_LEFT)

    def _ask(self, request: Request, prompt: Prompt, params: GenerationParams) -> Chunks:
        return pull(self._stream(address_of(request.client), prompt, params), request, self._threads)

    def _stream(self, address: str, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        self._limits.check(prompt)
        with self._limits.reply(address), closing(self._engine.stream(prompt, params)) as chunks:
            yield from chunks

    def _info(self) -> ModelInfo:
        status = self._engine.status()
        # A reply that comes is not to be cut because somebody else's has just found the server gone.
        self._known = status.info or self._known
        if self._known is None:
            raise ModelLoadError(str(status.error or "The model is still loading. Try again in a moment."))
        return self._known

    def _check_model(self, name: str) -> None:
        """Raise UnknownModel for another name than the model's, with or without its owner and @revision."""
        info, asked = self._engine.status().info, name.partition("@")[0]
        if info and asked and not (_ends_with(info.name, asked) or _ends_with(asked, info.name)):
            raise UnknownModel(f"There is no model {name!r} here. Send {info.name!r}, or leave `model` out.", "model")

    def _describe(self, info: ModelInfo) -> Model:
        return {
            "id": info.name,
            "object": "model",
            "created": self._started_at,
            "owned_by": info.name.rpartition("/")[0] or "local",
            "max_model_len": info.window,
        }


async def stream_page() -> Response:
    """Serve the page that reads /generate."""
    return FileResponse(STREAM_PAGE)


def _ends_with(name: str, ending: str) -> bool:
    return f"/{name}".endswith(f"/{ending}")


def _describe_health(status: Status) -> Health:
    health: Health = {"status": status.state}
    if status.info:
        health["model"] = status.info.name
    if status.progress:
        health["progress"] = {
            "text": status.progress.text,
            "done": status.progress.done,
            "total": status.progress.total,
        }
    if status.error:
        health["error"] = str(status.error)
    return health


def _content(streamed: dict[str, Any], whole: type | None = None) -> Documents:
    """Describe to OpenAPI what a route answers."""
    return {200: {"content": streamed} | ({"model": whole} if whole else {}), **ERRORS}
