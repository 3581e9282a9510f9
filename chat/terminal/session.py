"""One conversation in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from chat import conversation
from chat.conversation import History
from chat.reply import Reply
from chat.terminal.screen import Screen
from chat.types import ChatError, Engine, GenerationParams, ModelInfo


@dataclass
class Session:
    """What is talked about, with whom, and how. A request that fails leaves the history as it was."""

    engine: Engine
    info: ModelInfo
    screen: Screen
    read: Callable[[str], str]
    """Reads the person's next message; its argument is what stands in the line already. Raises: EOFError at Ctrl-D."""
    system_prompt: str
    params: GenerationParams
    history: History = field(default_factory=list)
    text: str = ""
    """What was completed last, as far as it has come."""

    def ask(self, text: str) -> None:
        """Answer a message. Raises: ChatError."""
        self.answer(conversation.ask(self.history, text))

    def complete(self, text: str) -> None:
        """Go on with a text as it stands, without a chat template, and apart from the history. Raises: ChatError."""
        reply = Reply()
        try:
            self.screen.grow(text, self.engine.stream(text, self.params), reply)
        finally:
            self.text = text + reply.content
        self.screen.account(reply, self.info.window, "/complete")

    def answer(self, history: History) -> None:
        """Stream the reply that `history` waits for, or go on with the one at its end. Raises: ChatError."""
        reply = Reply.going_on_from(history[-1]) if conversation.can_continue(history) else Reply()
        stream = self.engine.stream(conversation.prompt(history, self.system_prompt), self.params)
        try:
            self.screen.follow(stream, reply)
        except ChatError:
            if reply.content or reply.thought:
                self.history = conversation.reply(history, reply.message())
            raise
        self.history = conversation.reply(history, reply.message())
        self.screen.account(reply, self.info.window)
