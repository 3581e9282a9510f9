"""What to measure."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from chat.settings import ENVIRONMENT_ONLY, FLAG, EngineSettings


class BenchSettings(EngineSettings):
    """Measure how fast the model is on this machine: alone, in each engine, and through the whole server.

    Each flag can also be set in the environment: --max-new-tokens is CHAT_MAX_NEW_TOKENS. A flag wins.
    """

    tokens: int = Field(64, ge=2, description="Tokens in each reply.")
    turns: int = Field(8, ge=1, description="Turns of the conversation that grows.")
    users: str = Field("1,2,4,8,16", pattern=r"^[1-9]\d*(,[1-9]\d*)*$", description="How many people ask at once.")
    repeat: int = Field(1, ge=1, description="Rounds to measure; the medians are shown.")
    soak: int = Field(0, ge=0, description="Also talk this many turns in 20 conversations, and watch the memory.")
    against: str = Field("", description="Measure another OpenAI-compatible server in turn, as http://host:8000/v1.")
    against_model: str = Field("", description="Its model; empty is the first that it lists.")
    against_key: SecretStr = Field(SecretStr(""), description="Its key.", json_schema_extra=ENVIRONMENT_ONLY)
    json_file: Path | None = Field(None, description="Also write the figures there.", json_schema_extra={FLAG: "json"})
    plot: Path | None = Field(None, description="Also draw the figures there, as a .png or .svg file.")

    @property
    def user_counts(self) -> list[int]:
        """`users` as numbers."""
        return [int(count) for count in self.users.split(",")]
