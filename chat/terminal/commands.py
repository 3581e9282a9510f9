"""The slash commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chat import conversation, transcript
from chat.captions import model_caption
from chat.reply import Reply
from chat.settings import read_texts
from chat.terminal.session import Session
from chat.types import GenerationParams, InvalidRequest, parse_params

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
# What the ChatGLM demo listened to.
_PLAIN = {"clear": "/clear", "stop": "/exit"}


class Command(NamedTuple):
    """What a command is given after its name, what it does in words, and what it does."""

    usage: str
    purpose: str
    run: Callable[[Session, str], None]


def obey(session: Session, line: str) -> bool:
    """Do what `line` commands; return whether it is a command at all. Raises: ChatError; EOFError to leave."""
    match = _COMMAND.fullmatch(_PLAIN.get(line.strip(), line.rstrip()))
    if match is None:
        return False
    name, argument = match[1], match[2] or ""
    if name not in COMMANDS:
        raise InvalidRequest(
            f"There is no /{name}; /help lists what there is. With a blank before the slash it is sent as a message."
        )
    COMMANDS[name].run(session, argument)
    return True


def _clear(session: Session, _: str) -> None:
    session.history = []
    session.screen.clear()
    session.screen.say(model_caption(session.info), "dim")


def _retry(session: Session, _: str) -> None:
    session.answer(conversation.retry(session.history))


def _undo(session: Session, _: str) -> None:
    session.history, question = _without_last(session)
    session.screen.say(f"Took back: {question}", "dim")


def _edit(session: Session, text: str) -> None:
    kept, question = _without_last(session)
    session.answer(conversation.ask(kept, text or session.read(question)))


def _continue(session: Session, _: str) -> None:
    if not conversation.can_continue(session.history):
        raise InvalidRequest("There is no reply to continue yet. Send a message first.")
    session.answer(session.history)


def _complete(session: Session, text: str) -> None:
    if not (text or session.text):
        raise InvalidRequest("There is no text to go on with yet. /complete TEXT begins one.")
    session.complete(text or session.text)


def _system(session: Session, text: str) -> None:
    if text:
        session.system_prompt = "" if text == "none" else text
    session.screen.say(
        f"System prompt: {session.system_prompt}\n/system none removes it."
        if session.system_prompt
        else "No system prompt; the model's template decides. /system TEXT sets one.",
        "dim",
    )


def _set(session: Session, argument: str) -> None:
    name, _, value = re.split(r"(=|\s+|$)", argument.strip(), maxsplit=1)
    name = name.replace("-", "_")
    if name and name not in GenerationParams.model_fields:
        raise InvalidRequest(f"There is no setting {name}. There are {', '.join(GenerationParams.model_fields)}.")
    if value:
        session.params = parse_params(**{**session.params.model_dump(), name: _read_value(name, value)})
    _show_params(session, [name] if name else list(GenerationParams.model_fields))


def _save(session: Session, path: str) -> None:
    transcript.save(_read_path("/save", path), session.history, session.system_prompt)
    session.screen.say(f"Saved {len(session.history)} messages to {path}.", "dim")


def _load(session: Session, path: str) -> None:
    session.history, session.system_prompt = transcript.load(_read_path("/load", path))
    session.screen.say(f"Loaded {len(session.history)} messages from {path}.", "dim")
    for message in session.history[-2:]:
        if message["role"] == "user":
            session.screen.say(f"> {message['content']}")
        else:
            session.screen.show(Reply.going_on_from(message))


def _help(session: Session, _: str) -> None:
    for name, command in COMMANDS.items():
        session.screen.say(f"{f'/{name} {command.usage}':20}{command.purpose}")
    session.screen.say(
        "\nEnter sends; Alt-Enter, or a backslash before Enter, begins a new line. Ctrl-C stops a reply and keeps "
        "what came; at the prompt it clears the line. Ctrl-D leaves."
    )


def _exit(session: Session, _: str) -> None:
    raise EOFError


COMMANDS = {
    "clear": Command("", "Begin a new conversation.", _clear),
    "retry": Command("", "Answer the last question again.", _retry),
    "undo": Command("", "Take back the last question and its reply.", _undo),
    "edit": Command("[TEXT]", "Change the last question and ask it again.", _edit),
    "continue": Command("", "Go on with the last reply.", _continue),
    "complete": Command("[TEXT]", "Go on with a text, or with the last one, without a chat.", _complete),
    "system": Command("[TEXT]", "Show or set the system prompt; none removes it.", _system),
    "set": Command("[NAME [VALUE]]", "Show or set sampling; none is the model's own value.", _set),
    "save": Command("FILE", "Write the conversation to a file.", _save),
    "load": Command("FILE", "Go on with a conversation from a file.", _load),
    "help": Command("", "List the commands.", _help),
    "exit": Command("", "Leave.", _exit),
}


def _without_last(session: Session) -> tuple[conversation.History, str]:
    """Return the history without its last question and reply, and the question. Raises: InvalidRequest."""
    kept, question = conversation.undo(session.history)
    if not question:
        raise InvalidRequest("There is no question yet. Send a message first.")
    return kept, question


def _read_path(command: str, text: str) -> Path:
    if not text:
        raise InvalidRequest(f"{command} needs the name of a file, as {command} talk.json.")
    return Path(os.path.expanduser(text))


def _read_value(name: str, value: str) -> object:
    """Turn what was typed into what GenerationParams can check."""
    if value == "none":
        return GenerationParams.model_fields[name].default
    return read_texts(value) if name == "stop" else value


def _show_params(session: Session, names: list[str]) -> None:
    for name in names:
        value, own = getattr(session.params, name), getattr(session.info.defaults, name)
        shown = value if value not in (None, ()) else f"{own if own not in (None, ()) else 'not set'} (the model's own)"
        session.screen.say(f"{name} = {shown}", "dim")
