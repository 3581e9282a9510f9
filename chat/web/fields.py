"""What a field of a request may hold, and how much of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_BODY_BYTES = 8 * 2**20
MAX_MESSAGES = 2_000
MAX_TEXT = 1_000_000  # characters in one text, about 250,000 tokens
MAX_NAME = 500
EMPTY: tuple[object, ...] = (None, [], {})


def _mend(text: object) -> object:
    """Replace half surrogate pairs by U+FFFD, as browsers do: JSON can carry them, UTF-8 and tokenizers cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else text


Text = Annotated[str, Field(max_length=MAX_TEXT), BeforeValidator(_mend)]
Name = Annotated[str, Field(max_length=MAX_NAME)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_NAME), BeforeValidator(_mend)]


class Fields(BaseModel):
    """A JSON object in which null and empty values count as left out, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value not in EMPTY} if isinstance(data, dict) else data
