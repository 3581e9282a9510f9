"""Settings: defaults, over them the environment (CHAT_*), over it the flags."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from chat.space import on_space
from chat.types import GenerationParams, explain

S = TypeVar("S", bound="EngineSettings")
T = TypeVar("T")
POSITIONAL: JsonDict = {"positional": True}
"""Marks, as a field's json_schema_extra, a value that is given without a flag."""
FLAG = "flag"
"""Names, as a key in a field's json_schema_extra, a flag that cannot be the field's own name."""


ENVIRONMENT_ONLY: JsonDict = {"environment_only": True}
"""Marks, as a field's json_schema_extra, a value that has no flag, because other users can see a process's flags."""


def _check_engine(value: str) -> str:
    address = urlsplit(value)
    is_address = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    if is_address or value in ("auto", "direct", "batched", "hub"):
        return value
    raise ValueError("Allowed are auto, direct, batched, hub, and the address of a server, as http://host:8000/v1")


def _is_elsewhere(engine: str) -> bool:
    return engine == "hub" or engine.startswith("http")


def read_texts(value: Any) -> Any:
    """Accept one plain text, or a JSON list of texts, where only text can be given."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.startswith("[") else (value,)
    except json.JSONDecodeError:
        return (value,)


def _default_host() -> str:
    # A Space's own proxy, which visitors come through, is another machine.
    return "0.0.0.0" if on_space() else "127.0.0.1"  # noqa: S104


Texts = Annotated[T, NoDecode, BeforeValidator(read_texts)]
"""A setting of several texts."""


class EngineSettings(BaseSettings):
    """Which model to load, and how it generates.

    Each flag can also be set in the environment: --max-new-tokens is CHAT_MAX_NEW_TOKENS. A flag wins.
    """

    model_config = SettingsConfigDict(env_prefix="CHAT_", env_ignore_empty=True, extra="forbid", frozen=True)

    model: str = Field("", description="Hub id, folder, or folder-or-id:file.gguf; empty is the small default model.")
    revision: str = Field("", description="Branch, tag or commit of the hub model.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps, ...")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field("auto", description="Type of the weights.")
    trust_remote_code: bool = Field(False, description="Run Python code that comes with the model.")
    chat_template: str = Field(
        "", description="chatml, chatglm, llama2, alpaca, vicuna, or a template file; empty is the model's own."
    )
    engine: Annotated[str, AfterValidator(_check_engine)] = Field(
        "auto",
        description="auto, direct, batched, or where the model runs: hub, or an OpenAI-compatible server as http://host:8000/v1.",
    )
    engine_key: SecretStr = Field(
        SecretStr(""), description="Key of that server, or hub token.", json_schema_extra=ENVIRONMENT_ONLY
    )
    tokenizer: str = Field("", description="Hub id or folder of a tokenizer, for a server that cannot count tokens.")
    quantize: Literal["int8", "int4"] | None = Field(
        None, description="int8 or int4: pack the weights as they load, for less memory."
    )
    compile: bool = Field(False, description="Compile the model as it loads; for --engine direct.")
    system_prompt: str = Field("", description="What the model is told first; empty leaves it to the template.")

    max_new_tokens: int = Field(1024, ge=1, description="Longest reply, in tokens.")
    temperature: float | None = Field(None, ge=0, le=5, description="0 is greedy; unset takes the model's own.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling; unset takes the model's own.")
    top_k: int | None = Field(
        None, ge=0, description="Likeliest tokens to sample from, 0 is all; unset: the model's own."
    )
    repetition_penalty: float | None = Field(None, gt=0, le=10, description="Above 1 discourages repetition.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Same seed, same text.")
    stop: Texts[tuple[str, ...]] = Field((), description="Text that ends the reply; repeatable.")
    cache_memory: ByteSize | None = Field(
        None,
        description="Memory for what was read in earlier turns, as 2GB; 0 is none; unset: a quarter of what is free.",
    )
    queue_size: int = Field(32, ge=1, description="How many requests may wait; more are refused.")

    @property
    def is_remote(self) -> bool:
        """Whether the model runs elsewhere."""
        return _is_elsewhere(self.engine)

    @field_validator("quantize", "compile")
    @classmethod
    def _check_that_the_model_loads_here(cls, value: T, info: ValidationInfo) -> T:
        if value and _is_elsewhere(info.data.get("engine", "")):
            raise ValueError("With this --engine the model is loaded by a server: set it there")
        return value

    @field_validator("compile")
    @classmethod
    def _check_that_it_compiles(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("quantize"):
            raise ValueError("Packed weights cannot be compiled: leave --compile or --quantize out")
        if value and info.data.get("engine") != "direct":
            raise ValueError("What is compiled answers one at a time: add --engine direct")
        return value

    def params(self) -> GenerationParams:
        """Return the generation settings; what is unset is None and takes the model's own default."""
        return GenerationParams(**{name: getattr(self, name) for name in GenerationParams.model_fields})


class Settings(EngineSettings):
    """Talk with a language model on your own machine, in a web page.

    Each flag can also be set in the environment: --max-new-tokens is CHAT_MAX_NEW_TOKENS. A flag wins.
    """

    host: str = Field(
        default_factory=_default_host,
        description="Address to listen on; 0.0.0.0 is every network of this machine.",
    )
    port: int = Field(7860, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    root_path: str = Field("", description="Path prefix behind a reverse proxy, as /chat.")
    share: bool = Field(False, description="Also open a public gradio.live link.")
    title: str = Field("", description="Title of the page; empty is the model's name.")
    api_key: Texts[tuple[Annotated[SecretStr, Field(min_length=1)], ...]] = Field(
        (), description="Key that clients of the HTTP API must send; repeatable. Safer in the environment."
    )
    auth: Texts[tuple[SecretStr, ...]] = Field(
        (), description="NAME:PASSWORD of who may log in to the page; repeatable. Safer in the environment."
    )
    auth_file: str = Field("", description="File of such accounts; `python -m chat password NAME` makes its lines.")
    messages_per_minute: int | None = Field(
        None, ge=1, description="Most messages from one address; unset: 60, but this machine itself has no limit."
    )
    replies_per_address: int | None = Field(
        None, ge=1, description="Most replies at once to one address; unset: 8, but this machine itself has no limit."
    )
    message_length: int = Field(1_000_000, ge=1, description="Most characters in one message.")
    history_length: int = Field(2_000, ge=1, description="Most messages in one conversation.")

    @property
    def has_login(self) -> bool:
        """Whether the page asks for a name and a password."""
        return bool(self.auth or self.auth_file)


def read_settings(kind: type[S], program: str, arguments: Sequence[str] | None = None) -> S:
    """Read `kind` from the environment and the command line (`sys.argv` unless `arguments` is given).

    Exits with status 2 and a line for each mistake on stderr if a value is bad.
    """
    flags = vars(_create_parser(kind, program).parse_args(arguments))
    try:
        return kind(**flags)
    except ValidationError as error:
        message = explain(error)
    except SettingsError as error:
        message = str(error)
    print(f"{program}: {message}\n{program}: --help lists what is allowed.", file=sys.stderr)
    raise SystemExit(2)


def _create_parser(kind: type[EngineSettings], program: str) -> ArgumentParser:
    """Give each field a flag: bools also `--no-x`, tuples are repeatable. Values stay text for pydantic to check."""
    parser = ArgumentParser(program, description=kind.__doc__, argument_default=SUPPRESS, allow_abbrev=False)
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        flag = f"--{extra.get(FLAG, name.replace('_', '-'))}"
        if extra == ENVIRONMENT_ONLY:
            continue
        default = field.get_default(call_default_factory=True)
        text = f"{field.description} [{default}]" if default else field.description
        if field.annotation is bool:
            parser.add_argument(flag, dest=name, action=BooleanOptionalAction, help=text)
        elif isinstance(default, tuple):
            parser.add_argument(flag, action="append", metavar="TEXT", help=text)
        elif extra == POSITIONAL:
            parser.add_argument(name, nargs="?", help=text)
        else:
            parser.add_argument(flag, dest=name, metavar=name.rsplit("_")[-1].upper(), help=text)
    return parser
