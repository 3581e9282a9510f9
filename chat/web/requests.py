"""What clients of the HTTP API send.

The shapes are those of OpenAI's API reference (chat completions, completions). A field that is null
or empty counts as left out, and one that this server cannot honour is refused, never ignored.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, model_validator

from chat.types import GenerationParams, Message
from chat.web.fields import MAX_MESSAGES, Fields, Name, StopText, Text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_parts(value: object) -> object:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class Sampling(Fields, GenerationParams):
    """The fields that say how to generate."""

    stop: Annotated[
        tuple[StopText, ...], Field(max_length=16), BeforeValidator(_as_list, json_schema_input_type=str | list[str])
    ] = Field((), description="Texts that end the reply; they are not part of it.")

    def params(self) -> GenerationParams:
        """Return what the engine reads."""
        return GenerationParams(**self.model_dump(include=set(GenerationParams.model_fields)))


class GenerateRequest(Sampling):
    """Text to continue as it stands, without a chat template."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Once upon a time", "max_new_tokens": 50, "temperature": 0.7}]}
    )

    text: Text


class StreamOptions(Fields):
    """What a stream says beside the reply."""

    include_usage: bool = Field(False, description="End the stream with the token counts.")
    include_obfuscation: Literal[False] = False


class TextFormat(Fields):
    """The one format there is."""

    type: Literal["text"]


class OpenAIRequest(Sampling):
    """The fields that both of OpenAI's routes share."""

    model: Name = Field("", description="This server's model; may be left out.")
    max_new_tokens: int | None = Field(
        None,
        ge=1,
        validation_alias=AliasChoices("max_completion_tokens", "max_tokens"),
        description="Longest reply, in tokens; `max_tokens` is the same.",
    )
    stream: bool = Field(False, description="Send the reply while it grows, as server-sent events.")
    stream_options: StreamOptions = StreamOptions()

    n: Literal[1] = 1
    num_beams: Literal[1] = Field(1, description="Beams cannot be streamed.")
    presence_penalty: Literal[0] = Field(0, description="Use repetition_penalty.")
    frequency_penalty: Literal[0] = Field(0, description="Use repetition_penalty.")

    user: Name = Field("", description="Accepted and not used.")

    @model_validator(mode="after")
    def _check_stream_options(self) -> OpenAIRequest:
        if "stream_options" in self.model_fields_set and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self


class TextPart(Fields):
    """A piece of a message."""

    type: Literal["text"]
    text: Text


class ChatMessage(Fields):
    """One message of the conversation, as OpenAI's clients write it, or as this server sent it."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        tuple[TextPart, ...], BeforeValidator(_as_parts, json_schema_input_type=Text | list[TextPart])
    ] = ()
    reasoning_content: Text = Field("", description="The thought of an earlier reply.")
    name: Name = Field("", description="Accepted and not used.")

    @model_validator(mode="after")
    def _check_content(self) -> ChatMessage:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("content is missing")
        return self

    def message(self) -> Message:
        """Return what the engine reads."""
        message: Message = {
            "role": "system" if self.role == "developer" else self.role,
            "content": "\n".join(part.text for part in self.content),
        }
        if self.reasoning_content:
            message["thought"] = self.reasoning_content
        return message


class ChatRequest(OpenAIRequest):
    """A conversation to answer. If the assistant has the last word, its message is continued."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "messages": [
                        {"role": "system", "content": "Answer in one sentence."},
                        {"role": "user", "content": "What is the capital of France?"},
                    ],
                    "max_tokens": 100,
                    "stream": True,
                }
            ]
        }
    )

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)

    logprobs: Literal[False] = False
    tool_choice: Literal["none", "auto"] = "none"
    response_format: TextFormat = TextFormat(type="text")
    modalities: list[Literal["text"]] = Field(["text"], max_length=1)
    service_tier: Literal["auto", "default"] = "auto"

    metadata: dict[str, Any] = Field({}, description="Accepted and not used.")
    store: bool = Field(False, description="Accepted; nothing is stored.")
    parallel_tool_calls: bool = Field(True, description="Accepted and not used.")
    safety_identifier: Name = Field("", description="Accepted and not used.")
    prompt_cache_key: Name = Field("", description="Accepted and not used.")

    @model_validator(mode="before")
    @classmethod
    def _read_generation_config(cls, data: Any) -> Any:
        """Spread out `generation_config`, the JSON text in which `transformers chat` sends its settings."""
        if not isinstance(data, dict) or data.get("generation_config") is None:
            return data
        fields = {name: value for name, value in data.items() if name != "generation_config"}
        return _read_config(data["generation_config"]) | fields

    def conversation(self) -> list[Message]:
        """Return what the engine reads."""
        return [message.message() for message in self.messages]


class CompletionRequest(OpenAIRequest):
    """Text to continue as it stands, without a chat template, in OpenAI's older shape."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "Once upon a time", "max_tokens": 50, "stream": True}]}
    )

    prompt: Annotated[
        tuple[Text], BeforeValidator(_as_list, json_schema_input_type=Text | Annotated[list[Text], Field(max_length=1)])
    ] = Field(description="One text.")

    best_of: Literal[1] = 1
    echo: Literal[False] = False


def _read_config(text: object) -> dict[str, Any]:
    """Translate a transformers GenerationConfig, as JSON text, into this server's fields."""
    try:
        config = json.loads(text) if isinstance(text, str) else None
    except json.JSONDecodeError:
        config = None
    if not isinstance(config, dict):
        raise ValueError("generation_config must be a JSON object, written as text")
    config.pop("transformers_version", None)
    if config.pop("do_sample", True) is False:
        config["temperature"] = 0
    if "max_new_tokens" in config:
        config["max_tokens"] = config.pop("max_new_tokens")
    return config
