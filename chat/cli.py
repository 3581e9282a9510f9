"""The chat in a terminal, or one question and its reply."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TextIO

from pydantic import Field

from chat import conversation
from chat.engine import create_engine
from chat.settings import FLAG, POSITIONAL, EngineSettings, read_settings
from chat.terminal.plain import write_json, write_text
from chat.terminal.talk import talk
from chat.terminal.visible import visible
from chat.types import ChatError, InvalidRequest


class CliSettings(EngineSettings):
    """Talk with a language model in the terminal.

    With a question, as an argument or on standard input, only its reply is printed. Each flag can also be
    set in the environment: --max-new-tokens is CHAT_MAX_NEW_TOKENS. A flag wins.
    """

    question: str | None = Field(
        None, description="What to ask; text on standard input is added to it.", json_schema_extra=POSITIONAL
    )
    as_json: bool = Field(
        False, description="Print one JSON object with reply, thought and usage.", json_schema_extra={FLAG: "json"}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Talk, or answer one question; return the exit status. Raises: KeyboardInterrupt."""
    settings = read_settings(CliSettings, "python -m chat", arguments)
    _set_encodings()
    try:
        _run(settings)
    except ChatError as error:
        print(" ".join(visible(str(error)).split()), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the reply has enough. At its exit Python would write there once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _set_encodings() -> None:
    """Write UTF-8 to files and pipes, to a terminal what it can show, and read whatever comes."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def _run(settings: CliSettings) -> None:
    talks = settings.question is None and not settings.as_json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    history = [] if talks else conversation.ask([], _read_question(settings.question))
    with closing(create_engine(settings)) as engine:
        if talks:
            talk(engine, settings)
        else:
            stream = engine.stream(conversation.prompt(history, settings.system_prompt), settings.params())
            (write_json if settings.as_json else write_text)(stream)


def _read_question(question: str | None) -> str:
    """Return the question, and below it what stands on standard input. Raises: InvalidRequest if both are blank."""
    parts = [question or "", _read_input(wait=question is None)]
    text = "\n\n".join(part for part in parts if part.strip())
    if not text:
        raise InvalidRequest("There is no question. Give it as an argument or on standard input.")
    # Bytes that are no text would fail later, in the tokenizer.
    return text.encode("utf-8", "replace").decode()


def _read_input(wait: bool) -> str:
    """Return what stands on standard input; without `wait`, only from a file or a pipe, which are known to end."""
    if sys.stdin is None or _is_terminal(sys.stdin):
        return ""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return sys.stdin.read() if wait or stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else ""


def _is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a person sits at the stream; it is None where the shell has closed it."""
    return stream is not None and stream.isatty()
