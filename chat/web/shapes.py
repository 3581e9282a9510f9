"""The shapes in which the HTTP API answers: those of OpenAI's API reference, and two of our own."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

Finish: TypeAlias = Literal["stop", "length"]


class CachedTokens(TypedDict):
    """How many tokens of the prompt had been read before."""

    cached_tokens: int


class TokenCounts(TypedDict):
    """What a reply cost. `messages_left_out`: the oldest messages that no longer fitted into the window."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    messages_left_out: NotRequired[int]


class Head(TypedDict):
    """What all objects of one reply have in common."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class ReplyMessage(TypedDict):
    """A whole reply; `reasoning_content` is its thought."""

    role: Literal["assistant"]
    content: str
    reasoning_content: NotRequired[str]


class ReplyDelta(TypedDict, total=False):
    """A piece of a reply: the first one has the role, the last one nothing."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str


class ChatChoice(TypedDict):
    """The one reply."""

    index: int
    message: ReplyMessage
    logprobs: None
    finish_reason: Finish | None


class ChatChunkChoice(TypedDict):
    """The next piece of the one reply."""

    index: int
    delta: ReplyDelta
    logprobs: None
    finish_reason: Finish | None


class TextChoice(TypedDict):
    """The one continuation, or its next piece."""

    index: int
    text: str
    logprobs: None
    finish_reason: Finish | None


class ChatCompletion(Head):
    """The answer to a conversation."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: TokenCounts | None


class ChatCompletionChunk(Head):
    """One event of a streamed answer. `usage` is null but in the last one, and there only if it was asked for."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: TokenCounts | None


class Completion(Head):
    """The continuation of a text, or one event of a streamed one, with `usage` as above."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: TokenCounts | None


class Model(TypedDict):
    """The model that answers; `max_model_len` is its window in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(TypedDict):
    """The models that can be asked: one, or none while it loads."""

    object: Literal["list"]
    data: list[Model]


class ErrorDetail(TypedDict):
    """What went wrong, in words; `param` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """Every answer that is not 200, and the event that ends a failed stream."""

    error: ErrorDetail


class LoadingProgress(TypedDict):
    """How far loading is: `done` of `total`, both 0 if that is not known."""

    text: str
    done: int
    total: int


class Health(TypedDict):
    """Whether the model can answer."""

    status: Literal["loading", "ready", "failed"]
    model: NotRequired[str]
    progress: NotRequired[LoadingProgress]
    error: NotRequired[str]
