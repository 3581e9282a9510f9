"""A conversation in the terminal, from the first line to the last."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console

from chat.captions import model_caption
from chat.settings import EngineSettings
from chat.terminal.commands import COMMANDS, obey
from chat.terminal.keys import stop_key
from chat.terminal.prompt import Prompt
from chat.terminal.screen import Screen
from chat.terminal.session import Session
from chat.types import ChatError, Engine


def talk(engine: Engine, settings: EngineSettings) -> None:
    """Wait for the model, then answer message after message until the person leaves. Raises: ModelLoadError."""
    screen = Screen(Console(highlight=False))
    status = screen.wait_for(engine)
    if status.error or not status.info:
        raise status.error or ChatError("The model is not there.")
    screen.say(model_caption(status.info), "dim")
    if status.info.is_base:
        screen.say("A base model is best at going on with a text: /complete TEXT", "dim")
    prompt = Prompt([f"/{name}" for name in COMMANDS])
    session = Session(engine, status.info, screen, prompt.read, settings.system_prompt, settings.params())
    # Between a reply and the next line Ctrl-C has nothing to stop, and must not end the conversation.
    with stop_key(), suppress(EOFError):
        while True:
            _take_line(session, prompt)


def _take_line(session: Session, prompt: Prompt) -> None:
    """Read a line and do what it asks for. Raises: EOFError to leave."""
    try:
        line = prompt.read()
        if not obey(session, line) and line.strip():
            session.ask(line)
    except ChatError as error:
        session.screen.fail(error)
    except KeyboardInterrupt:
        # Where prompt_toolkit puts its own handler in and takes it out, there is a moment without any.
        return
