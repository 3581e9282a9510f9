"""A request in the terms of OpenAI's API."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

from chat.engine.thought_formats import TAGGED
from chat.engine.turns import split_turns
from chat.types import GenerationParams, Message, Prompt

RENAMED = {"max_tokens": "max_completion_tokens"}
"""Fields that some servers only take under a newer name."""

OPTIONAL = {*RENAMED, "stream_options", "system"}
"""What a request can do without when the server refuses it."""

CONTINUE = ("continue_final_message", "add_generation_prompt")
"""How vLLM and SGLang are told to go on with a last reply; llama.cpp does so anyway."""


def create_body(model: str, prompt: Prompt, params: GenerationParams, refused: Collection[str]) -> dict[str, Any]:
    """Return the body of a streamed request, without the fields that the server has `refused` before.

    Fields of `params` that are None are left out, so that the server's own defaults hold.
    """
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    body |= _sampling(params) | create_prompt(prompt, refused)
    for name in refused & body.keys():
        value = body.pop(name)
        if name in RENAMED:
            body[RENAMED[name]] = value
    return body


def create_prompt(prompt: Prompt, refused: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields that say what is to be read, the same for a reply and for counting tokens."""
    if isinstance(prompt, str):
        return {"prompt": prompt}
    messages = _fold_system(prompt) if "system" in refused else prompt
    fields: dict[str, Any] = {"messages": [{"role": m["role"], "content": whole_text(m)} for m in messages]}
    if prompt[-1]["role"] == "assistant":
        fields |= dict(zip(CONTINUE, (True, False), strict=True))
    return fields


def tidy(messages: Sequence[Message]) -> list[Message]:
    """Return the messages in order: a system text, then turns. Raises: InvalidRequest if there is none."""
    system, turns = split_turns(messages, TAGGED)
    return [*system, *chain.from_iterable(turns)]


def whole_text(message: Message) -> str:
    """Return a message's text; the thought of a reply that is to go on stands in front, between its marks."""
    thought, answer = message.get("thought"), message["content"]
    if not thought:
        return answer
    return TAGGED.opening + thought + (TAGGED.closing + answer if answer else "")


def _fold_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system text in front of the first question, for a model that has no system role."""
    texts: list[Message] = [{"role": "user", "content": m["content"]} for m in messages if m["role"] == "system"]
    return tidy([*texts, *(m for m in messages if m["role"] != "system")])


def _sampling(params: GenerationParams) -> dict[str, Any]:
    fields = params.model_dump(exclude_none=True, exclude={"max_new_tokens", "stop"})
    if fields.get("top_k") == 0:
        fields["top_k"] = -1  # "all" to every server that knows top_k; SGLang refuses 0
    if params.stop:
        fields["stop"] = list(params.stop)
    if params.max_new_tokens is not None:
        fields["max_tokens"] = params.max_new_tokens
    return fields
