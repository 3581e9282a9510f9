"""A conversation in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError, model_validator

from chat.conversation import History
from chat.types import InvalidRequest, Message


class _Transcript(BaseModel):
    """The file's one object: messages as every chat program writes them, a system message first if there is one."""

    messages: list[Message]

    @model_validator(mode="after")
    def _check_system(self) -> _Transcript:
        if any(message["role"] == "system" for message in self.messages[1:]):
            raise ValueError("a system message may only come first")
        return self


def save(path: Path, history: Sequence[Message], system_prompt: str) -> None:
    """Write the conversation to `path`, over an earlier one only. Raises: InvalidRequest."""
    system: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
    text = json.dumps({"messages": [*system, *history]}, ensure_ascii=False, indent=2)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.exists() and not _is_transcript(path):
            raise InvalidRequest(f"{path} holds something else. Choose another name.")
        # Written aside first, so that a full disk does not cost the earlier conversation.
        part.write_text(f"{text}\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from None


def load(path: Path) -> tuple[History, str]:
    """Read a conversation; return its history and its system prompt. Raises: InvalidRequest."""
    if not path.is_file():
        raise InvalidRequest(f"There is no file {path}.")
    try:
        messages = _Transcript.model_validate_json(path.read_bytes()).messages
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InvalidRequest(f"{path} is no saved conversation. {place or 'file'}: {problem['msg']}.") from None
    if messages and messages[0]["role"] == "system":
        return messages[1:], messages[0]["content"]
    return messages, ""


def _is_transcript(path: Path) -> bool:
    try:
        load(path)
    except InvalidRequest:
        return False
    return True
