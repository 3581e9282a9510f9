"""The line a person writes in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle


class Prompt:
    """Reads messages: edited as in a shell, of one line or many, with those of earlier runs at the arrow keys."""

    def __init__(self, words: Sequence[str]) -> None:
        """`words` are completed at the start of a line."""
        # Asking the terminal for the cursor's place answers into what was typed ahead, and nothing here needs it.
        os.environ["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation="  ",
            placeholder=[("fg:ansibrightblack", "Write a message, or /help")],
            history=_open_history(_history_file()),
            key_bindings=_create_bindings(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
        )

    def read(self, text: str = "") -> str:
        """Return the next message; `text` stands in the line already. Raises: EOFError at Ctrl-D."""
        line = self._session.prompt(default=text)
        # Bytes that are no text would fail later, in the tokenizer or the file.
        return line.encode("utf-8", "replace").decode()


def _history_file() -> Path:
    """Return the file that keeps messages between runs: in XDG_STATE_HOME, or in its usual place."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "streaming-chat" / "history"


def _open_history(path: Path) -> History:
    """Return the history in `path`, readable by its owner alone; where no file can be, one for this run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _create_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def _clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    return bindings
