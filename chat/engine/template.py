"""A chat template with its whims: which roles it takes, and where a reply begins."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from chat.engine.reasoning import ThoughtFormat
from chat.types import InvalidRequest, Message, ModelLoadError

_SHIPPED = Path(__file__).parents[1] / "templates"
_END = "\U0010fffd"
"""Put at the end of a message to find it in the rendered text: private, and no template trims it."""


def read_shipped(name: str) -> str:
    """Return the text of a template that comes with this package."""
    return (_SHIPPED / f"{name}.jinja").read_text(encoding="utf-8")


class ChatTemplate:
    """Render messages to a prompt's text, whatever roles and orders the template refuses."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, source: str | None, thoughts: ThoughtFormat) -> None:
        """Find out by trying what the template takes. Raises: ModelLoadError if it takes nothing."""
        self._tokenizer, self._source, self._thoughts = tokenizer, source, thoughts
        self._in_blocks = False
        question = [_user("A question")]
        if not self._shows(question):
            self._in_blocks = True
            self._in_blocks = self._shows(question)
        try:
            self._render(question)
        except InvalidRequest as error:
            raise ModelLoadError(f"{error} Start with another --chat-template.") from error
        self._takes_system = self._shows([_system("A rule"), _user("A question")])
        self._takes_reply_first = self._shows([_reply("A greeting"), _user("A question")])
        self.stop_texts = self._find_stop_texts()

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the text that the model goes on from; it ends with the last message if that is a reply.

        Raises: InvalidRequest with the template's own reason if it refuses the messages.
        """
        chat, reply = self._split_off_reply(messages)
        if reply is None:
            return self._render(chat)
        if reply.get("thought"):
            text = self._render(chat)
            return text.removesuffix(self._opening(self._behind(chat))) + self._resume(reply)
        return self._continue(chat, reply["content"])

    def tail(self, messages: Sequence[Message]) -> str:
        """Return what `prompt` already holds of the reply, beginning with its first mark if it has one."""
        chat, reply = self._split_off_reply(messages)
        if reply is None:
            return self._opening(self._behind(chat))
        if reply.get("thought"):
            return self._resume(reply)
        head = self._render([*_ended(chat), _reply(_END)]).rsplit(_END, 2)[-2]
        return self._opening(head) + reply["content"]

    def _split_off_reply(self, messages: Sequence[Message]) -> tuple[list[Message], Message | None]:
        """Adapt the messages to the template; separate a last reply that is to go on."""
        chat = self._adapt(messages)
        if chat[-1]["role"] != "assistant":
            return chat, None
        reply = chat.pop()
        return chat or [_user("")], reply if reply["content"] or reply.get("thought") else None

    def _adapt(self, messages: Sequence[Message]) -> list[Message]:
        chat = list(messages)
        system = [chat.pop(0)] if chat[0]["role"] == "system" else []
        if (not chat or chat[0]["role"] == "assistant") and not (self._takes_reply_first and chat):
            chat.insert(0, _user(""))
        if system and not self._takes_system:
            texts = (system.pop()["content"], chat[0]["content"])
            chat[0] = _user("\n\n".join(text for text in texts if text))
        return system + chat

    def _continue(self, chat: list[Message], text: str) -> str:
        """Return the prompt that ends with `text` exactly, also where the template trims or rewrites it."""
        head, found, _ = self._render([*chat, _reply(text + _END)]).rpartition(_END)
        if not head.endswith(text):
            head, found, _ = self._render([*chat, _reply(_END)]).rpartition(_END)
            head += text
        if not found:
            raise InvalidRequest("This model's chat template cannot go on with a reply. Retry it instead.")
        return head

    def _resume(self, reply: Message) -> str:
        """Return a reply as the model wrote it, from the start of its thought."""
        answer = self._thoughts.closing + reply["content"] if reply["content"] else ""
        return self._thoughts.opening + reply["thought"] + answer

    def _behind(self, chat: list[Message]) -> str:
        """Return what the template writes behind the last message."""
        return self._render(_ended(chat)).rpartition(_END)[2]

    def _opening(self, head: str) -> str:
        """Return the end of `head` that begins with a mark, so that belongs to the reply."""
        marks = self._thoughts.states["start"].marks
        return head[min((head.find(mark) for mark in marks if mark in head), default=len(head)) :]

    def _shows(self, messages: list[Message]) -> bool:
        """Tell whether the template takes the messages and shows each of them."""
        try:
            text = self._render(messages)
        except InvalidRequest:
            return False
        return all(message["content"] in text for message in messages)

    def _find_stop_texts(self) -> tuple[str, ...]:
        """Return what comes behind a reply if it is plain text, so text that the model would go on to write."""
        turns = [[_user("A question"), _reply(f"An answer{_END}"), _user(f"{_END}Another")] for _ in range(2)]
        try:
            pieces = self._render([message for turn in turns for message in turn]).split(_END)
        except InvalidRequest:
            return ()
        text = commonprefix([pieces[1], pieces[3]]).rstrip() if len(pieces) > 4 else ""  # noqa: RUF071
        return (text,) if text and not any(token in text for token in self._tokenizer.all_special_tokens) else ()

    def _render(self, messages: Sequence[Message]) -> str:
        chat: list[dict[str, Any]] = [{"role": m["role"], "content": self._content(m)} for m in messages]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat, chat_template=self._source, add_generation_prompt=True, tokenize=False
                )
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidRequest(f"The model's chat template refuses these messages: {error}.", "messages") from error

    def _content(self, message: Message) -> str | list[dict[str, str]]:
        # Some templates of models that also see pictures read nothing but a list of blocks.
        return [{"type": "text", "text": message["content"]}] if self._in_blocks else message["content"]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _ended(chat: list[Message]) -> list[Message]:
    """Return the messages with the last one's end marked."""
    return [*chat[:-1], {"role": chat[-1]["role"], "content": chat[-1]["content"] + _END}]
