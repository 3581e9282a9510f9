"""The words every room speaks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

Role: TypeAlias = Literal["system", "user", "assistant"]
FinishReason: TypeAlias = Literal["stop", "length", "cancelled"]


class Message(TypedDict):
    """One message. The optional fields are what a person sees beside a reply; no model reads them."""

    role: Role
    content: str
    thought: NotRequired[str]
    thought_s: NotRequired[float]
    finish_reason: NotRequired[FinishReason | None]


Prompt: TypeAlias = Sequence[Message] | str
"""Messages to answer (a last assistant message is continued), or raw text to continue as it stands."""


class GenerationParams(BaseModel):
    """How to generate. A field that is None takes the model's own default; temperature 0 is greedy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int | None = Field(None, ge=1, description="Longest reply, in tokens.")
    temperature: float | None = Field(None, ge=0, le=5, description="0 is greedy; higher is more varied.")
    top_p: float | None = Field(None, gt=0, le=1, description="Sample from the likeliest tokens of this total.")
    top_k: int | None = Field(None, ge=0, description="Sample from this many likeliest tokens; 0 is all.")
    repetition_penalty: float | None = Field(None, gt=0, le=10, description="Above 1 discourages repetition.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Same seed, same text.")
    stop: tuple[str, ...] = Field((), description="Texts that end the reply; they are not shown.")

    def over(self, defaults: GenerationParams) -> GenerationParams:
        """Return these params with every unset field taken from `defaults`."""
        return defaults.model_copy(update=self.model_dump(exclude_none=True, exclude_defaults=True))


@dataclass(frozen=True, slots=True)
class Progress:
    """What the engine does while there is no text yet.

    loading: `done` of `total` bytes or weights, `text` says of what. queued: `done` is the place in
    line, 1 is next; where there is no place, `text` says what is waited for. reading: `done` of `total`
    prompt tokens.
    """

    kind: Literal["loading", "queued", "reading"]
    done: int = 0
    total: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply cost. Token counts, seconds to the first token, tokens/s after the first.

    `messages_left_out` counts the oldest messages that no longer fitted into the window.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_s: float = 0.0
    tokens_per_s: float = 0.0
    messages_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One streamed piece. Only the last chunk of a stream carries finish_reason and usage."""

    text: str = ""
    thought: str = ""
    progress: Progress | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is loaded. `window` is the most tokens prompt and reply may have together, 0 if nobody knows."""

    name: str
    device: str
    dtype: str
    window: int
    defaults: GenerationParams
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """Whether an engine can answer: `info` when ready, `progress` while loading, `error` when failed."""

    state: Literal["loading", "ready", "failed"]
    info: ModelInfo | None = None
    progress: Progress | None = None
    error: ChatError | None = None


class Engine(Protocol):
    """What generates."""

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        """Check the request now, then return the generator of its chunks.

        The generator yields at least every 0.1 s, so that its reader can notice a stop. Closing it
        is the one way to stop: it sets the request's cancel event and returns at once.

        Raises: ChatError, from the call or from the generator.
        """

    def status(self) -> Status:
        """Say at once whether the model is loading, ready or failed."""

    def close(self) -> None:
        """Cancel every request and free the model."""


class ChatError(Exception):
    """A failure whose text is fit to show to the person and says what to do next."""


class InvalidRequest(ChatError):
    """The request itself is wrong. `param` names the field at fault, if one is."""

    def __init__(self, text: str, param: str | None = None) -> None:
        super().__init__(text)
        self.param = param


class PromptTooLong(InvalidRequest):
    """The newest message alone does not fit into the window."""

    def __init__(self, prompt_tokens: int, window: int) -> None:
        super().__init__(
            f"The message is too long: {prompt_tokens:,} tokens, and the model can read {window:,} "
            "including its reply. Shorten it and send it again.",
            "messages",
        )
        self.prompt_tokens, self.window = prompt_tokens, window


class QueueFull(ChatError):
    """Too many people are waiting."""


class EngineUnavailable(ChatError):
    """What the engine runs on is out of reach for now."""


class OutOfMemory(ChatError):
    """The device has no room for this request."""


class GenerationFailed(ChatError):
    """The model raised while generating."""


class ModelLoadError(ChatError):
    """The model could not be loaded."""


class ModelNotFound(ModelLoadError):
    """There is no such model, folder or file."""


def parse_params(**fields: object) -> GenerationParams:
    """Build GenerationParams from outside values.

    Raises: InvalidRequest that says which value, why, and what is allowed.
    """
    try:
        return GenerationParams.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequest(explain(error), str(first["loc"][0]) if first["loc"] else None) from None


def explain(error: ValidationError) -> str:
    """Say in one line a value what is wrong with it: `temperature: 9 is not allowed, ...`."""
    lines = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        lines.append(f"{field}: {item['input']!r} is not allowed. {item['msg']}.")
    return "\n".join(lines)
