"""A chat template with its whims: which messages it takes, and where a reply begins."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers import PreTrainedTokenizerBase

from chat.engine.reasoning import special_tokens
from chat.engine.thought_formats import ThoughtFormat
from chat.types import InvalidRequest, Message, ModelLoadError, Role

_SHIPPED = Path(__file__).parents[1] / "templates"
_END = "\U0010fffd"
"""Marks the end of a message, to find it in the rendered text: private to us, and no template trims it."""


def shipped_names() -> list[str]:
    """Return the names of the templates that come with this package."""
    return sorted(file.stem for file in _SHIPPED.glob("*.jinja"))


def read_shipped(name: str) -> str:
    """Return the text of a template that comes with this package."""
    return (_SHIPPED / f"{name}.jinja").read_text(encoding="utf-8")


class ChatTemplate:
    """Write messages as the text that a model goes on from, whatever orders and roles its template refuses."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, source: str | None, thoughts: ThoughtFormat) -> None:
        """Find out by trying what the template takes. Raises: ModelLoadError if it takes nothing.

        Without a `source` it is the tokenizer's own template.
        """
        self._tokenizer, self._source, self._thoughts = tokenizer, source, thoughts
        self._in_blocks = False
        question, reply = _message("user", "A question"), _message("assistant", "A reply")
        if not self._shows(question):
            # Some templates of models that also see pictures read only lists of blocks.
            self._in_blocks = True
            self._in_blocks = self._shows(question)
        try:
            self._render([question])
        except InvalidRequest as error:
            raise ModelLoadError(f"{error} Start with another --chat-template.") from error
        self._takes_system = self._shows(_message("system", "A rule"), question)
        self._takes_reply_first = self._shows(reply, question)
        self._takes_empty_reply = self._shows(question, _message("assistant", ""), question)
        self.end_tokens, self.stop_texts = self._find_end(special_tokens(tokenizer))

    def write(self, messages: Sequence[Message]) -> tuple[str, str]:
        """Return the prompt's text, and its end that belongs to the reply already.

        The text ends with the last message, byte for byte, if that is a reply; an empty one is begun anew.
        Raises: InvalidRequest with the template's own reason if it refuses the messages.
        """
        chat = self._adapt(messages)
        reply = chat.pop() if chat[-1]["role"] == "assistant" else _message("assistant", "")
        if reply.get("thought"):
            return self._go_on_thinking(chat, reply)
        if reply["content"]:
            return self._go_on(chat, reply["content"])
        return self._render(chat), self._opening(chat)

    def _adapt(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages in an order and in roles that the template takes."""
        system = [message for message in messages[:1] if message["role"] == "system"]
        chat = list(messages[len(system) :])
        if not chat or (chat[0]["role"] == "assistant" and not (self._takes_reply_first and chat[1:])):
            chat.insert(0, _message("user", ""))
        if system and not self._takes_system:
            texts = (system.pop()["content"], chat[0]["content"])
            chat[0] = _message("user", "\n\n".join(text for text in texts if text))
        if not self._takes_empty_reply:
            chat[:-1] = [m if m["content"] else _message(m["role"], " ") for m in chat[:-1]]
        return system + chat

    def _go_on(self, chat: list[Message], text: str) -> tuple[str, str]:
        """Write a reply to go on with so that the prompt ends with it, also where the template changes it."""
        kept = text if text.strip() and self._reply_head(chat, text)[0].endswith(text) else ""
        prompt, head = self._reply_head(chat, kept)
        return prompt.removesuffix(kept) + text, self._from_mark(head.removesuffix(kept)) + text

    def _reply_head(self, chat: list[Message], text: str) -> tuple[str, str]:
        """Return the prompt up to the end of a reply, and its part behind the message before."""
        reply = _message("assistant", text + _END)
        prompt, found, _ = self._render([*chat, reply]).rpartition(_END)
        if not found:
            raise InvalidRequest("This model's chat template cannot go on with a reply. Retry it instead.", "messages")
        return prompt, self._render([*_ended(chat), reply]).rsplit(_END, 2)[-2]

    def _go_on_thinking(self, chat: list[Message], reply: Message) -> tuple[str, str]:
        """Write a reply as the model did, from the start of its thought."""
        answer = self._thoughts.closing + reply["content"] if reply["content"] else ""
        begun = self._thoughts.opening + reply["thought"] + answer
        return self._render(chat).removesuffix(self._opening(chat)) + begun, begun

    def _opening(self, chat: list[Message]) -> str:
        """Return the marks that the template itself begins the reply with."""
        return self._from_mark(self._render(_ended(chat)).rpartition(_END)[2])

    def _from_mark(self, head: str) -> str:
        """Return `head` from its first mark on: what stands before it is no part of the reply."""
        marks = self._thoughts.states["start"].marks
        return head[min((head.find(mark) for mark in marks if mark in head), default=len(head)) :]

    def _shows(self, *messages: Message) -> bool:
        """Tell whether the template takes the messages and shows each of them."""
        try:
            text = self._render(messages)
        except InvalidRequest:
            return False
        return all(message["content"] in text for message in messages)

    def _find_end(self, special: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what the template puts behind a reply: special tokens, or the next speaker's mark in plain text."""
        turn = [_message("user", f"{_END}A question"), _message("assistant", f"A reply{_END}")]
        try:
            pieces = self._render([*turn, *turn, *turn]).split(_END)
        except InvalidRequest:
            return (), ()
        # A template may number its turns, so take what two of them share; its first line tells enough.
        mark = commonprefix(pieces[2:5:2])  # noqa: RUF071
        line = mark.strip().partition("\n")[0]
        if token := max((token for token in special if line.startswith(token)), key=len, default=""):
            return (token,), ()
        return (), (mark[: mark.find(line) + len(line)],) if line and len(pieces) == 7 else ()

    def _render(self, messages: Sequence[Message]) -> str:
        chat: list[dict[str, Any]] = [{"role": m["role"], "content": self._content(m)} for m in messages]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat, chat_template=self._source, add_generation_prompt=True, tokenize=False
                )
            )
        except TemplateSyntaxError as error:
            raise ModelLoadError(
                f"The chat template has a mistake in line {error.lineno}: {error.message}. "
                "Mend it, or start with another --chat-template."
            ) from error
        except (TemplateError, TypeError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise InvalidRequest(f"The model's chat template refuses these messages: {reason}.", "messages") from error

    def _content(self, message: Message) -> str | list[dict[str, str]]:
        return [{"type": "text", "text": message["content"]}] if self._in_blocks else message["content"]


def _message(role: Role, content: str) -> Message:
    return {"role": role, "content": content}


def _ended(chat: list[Message]) -> list[Message]:
    """Return the messages with the last one's end marked."""
    return [*chat[:-1], _message(chat[-1]["role"], chat[-1]["content"] + _END)]
