"""What the page's events do: Gradio's values in, new values for the page out."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from html import escape
from typing import Any, TypeAlias, cast

import gradio as gr
from pydantic import TypeAdapter, ValidationError

from chat import conversation
from chat.conversation import History
from chat.settings import Settings
from chat.types import ChatError, Engine, GenerationParams, InvalidRequest, Prompt, parse_params
from chat.web import view
from chat.web.guard import unguard
from chat.web.limits import Limits, address_of
from chat.web.turns import Turns, Update

Outputs: TypeAlias = tuple[Any, History, list[view.Shown], str]
"""New values of the message box, the history, the chat and the status line."""

PANEL = {
    "max_new_tokens": "Max tokens",
    "temperature": "Temperature",
    "top_p": "Top p",
    "top_k": "Top k",
    "repetition_penalty": "Repetition penalty",
    "seed": "Seed",
}
"""The generation params that the settings panel has, after the system prompt, with their labels."""

_HISTORY = TypeAdapter(History)
_LOOK_S = 0.2  # how often a waiting page looks whether the model has loaded


class Actions:
    """What the events do. A visitor is one page load, or one API client: Gradio's session.

    `panel` is the system prompt, then a value for each of PANEL.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._turns = Turns(engine)
        self._limits = Limits(settings)

    def submit(self, text: str, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Answer what is in the message box; it is emptied once the question is accepted."""
        with _toasts():
            yield from self._answer(history, conversation.ask(history, text), request, panel, text)

    def pick(
        self, event: gr.SelectData, history: History, request: gr.Request, *panel: str
    ) -> Generator[Outputs, None, None]:
        """Answer an example."""
        yield from self.submit(event.value["text"], history, request, *panel)

    def retry(self, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Answer the last question again."""
        with _toasts():
            yield from self._answer(history, conversation.retry(history), request, panel)

    def edit(
        self, event: gr.EditData, history: History, request: gr.Request, *panel: str
    ) -> Generator[Outputs, None, None]:
        """Give a question a new text, drop what follows, and answer it."""
        with _toasts():
            text, place = unguard(event.value), view.message_index(history, cast(int, event.index))
            yield from self._answer(history, conversation.edit(history, place, text), request, panel, text)

    def go_on(self, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Continue the last reply."""
        with _toasts():
            yield from self._answer(history, history, request, panel)

    def undo(self, history: History, request: gr.Request) -> Outputs:
        """Take the last question back into the message box."""
        with _toasts():
            self._turns.check_idle(_visitor(request))
            left, text = conversation.undo(history)
            return text, left, view.show(left), self._idle_line(request)

    def clear(self, request: gr.Request) -> Outputs:
        """Begin a new conversation."""
        with _toasts():
            self._turns.check_idle(_visitor(request))
            return gr.skip(), [], [], self._idle_line(request)

    def stop(self, request: gr.Request) -> None:
        """Let the reply end here, with what it has."""
        self._turns.stop(_visitor(request))

    def watch(self, request: gr.Request) -> Generator[tuple[Any, ...], None, None]:
        """Show how the model loads, then its name, whether it completes texts, and its defaults for the panel."""
        while (status := self._engine.status()).state == "loading":
            yield (gr.skip(), self._idle_line(request), *[gr.skip()] * (1 + len(PANEL)))
            time.sleep(_LOOK_S)
        if info := status.info:
            defaults = (getattr(info.defaults, name) for name in PANEL)
            fields = [gr.update(value="" if value is None else str(value), interactive=True) for value in defaults]
            heading, mode = view.heading(self._settings.title or info.name), gr.update(visible=info.is_base)
            yield (heading, self._idle_line(request), mode, *fields)
        else:
            yield (gr.skip(), self._idle_line(request), *[gr.skip()] * (1 + len(PANEL)))

    def complete(self, text: str, request: gr.Request, *panel: str) -> Generator[tuple[str, str], None, None]:
        """Go on with a text as it stands, without a chat template; it grows where it was written."""
        with _toasts():
            if not text:
                raise InvalidRequest("There is no text to go on with. Write its beginning first.")
            begun: History = [{"role": "assistant", "content": text}]
            error = None
            with closing(self._take(request, begun, begun, text, _read_params(panel[1:]))) as updates:
                for update in updates:
                    yield update.reply.content, self._line(update)
                    error = update.error
            if error:
                raise error

    def keep(self, history: History) -> str:
        """Return what the browser keeps of a conversation."""
        return _HISTORY.dump_json(history).decode()

    def restore(self, kept: str | None) -> tuple[Any, Any]:
        """Return the conversation that a browser kept, if it is one."""
        try:
            history = _HISTORY.validate_json(kept or "")
        except ValidationError:
            return gr.skip(), gr.skip()
        return history, view.show(history)

    def chat(self, message: str, history: History, request: gr.Request) -> Generator[tuple[str, History], None, None]:
        """Answer a message; the conversation goes on with the next call of the same client."""
        with _toasts():
            asked, error = conversation.ask(history, message), None
            prompt = conversation.prompt(asked, self._settings.system_prompt)
            with closing(self._take(request, history, asked, prompt, GenerationParams())) as updates:
                for update in updates:
                    yield update.reply.content, update.history
                    error = update.error
            if error:
                raise error

    def _answer(
        self, before: History, asked: History, request: gr.Request, panel: Sequence[str], typed: str = ""
    ) -> Generator[Outputs, None, None]:
        """Answer or continue `asked`; what was typed leaves the message box, and comes back if nothing came of it."""
        system_prompt, *values = panel
        prompt = conversation.prompt(asked, system_prompt)
        settled = view.show(asked[:-1] if conversation.can_continue(asked) else asked)
        box, error = "" if typed else gr.skip(), None
        with closing(self._take(request, before, asked, prompt, _read_params(values))) as updates:
            for update in updates:
                error = update.error
                if error and typed and update.history is before:
                    box = typed
                shown = (
                    view.show(update.history) if update.is_over else [*settled, *view.show_growing(update.history[-1])]
                )
                yield box, update.history, shown, self._line(update)
                box = gr.skip()
        if error:
            raise error

    def _take(
        self, request: gr.Request, before: History, asked: History, prompt: Prompt, params: GenerationParams
    ) -> Generator[Update, None, None]:
        """Take a turn, within the limits."""
        visitor = _visitor(request)
        self._turns.check_idle(visitor)
        self._limits.check(prompt)
        turn = self._turns.take(visitor, before, asked, prompt, params)
        with self._limits.reply(address_of(request.client)), closing(turn):
            yield from turn

    def _line(self, update: Update) -> str:
        if update.error:
            return view.failed_line(update.error)
        return view.ended_line(update.reply, self._window()) if update.is_over else view.growing_line(update.reply)

    def _window(self) -> int:
        info = self._engine.status().info
        return info.window if info else 0

    def _idle_line(self, request: gr.Request) -> Any:
        busy = self._turns.is_busy(_visitor(request))
        return gr.skip() if busy else view.waiting_line(self._engine.status())


def _read_params(values: Sequence[str]) -> GenerationParams:
    """Read what stands in the panel's fields; an empty one takes the model's own. Raises: InvalidRequest."""
    return parse_params(**{name: value.strip() or None for name, value in zip(PANEL, values, strict=True)})


def _visitor(request: gr.Request) -> str:
    return request.session_hash or ""


@contextmanager
def _toasts() -> Iterator[None]:
    """Turn an error into a toast. A toast is HTML, and an error's text may hold what a person typed."""
    try:
        yield
    except ChatError as error:
        raise gr.Error(escape(str(error), quote=False), print_exception=False) from None
    except Exception as error:
        raise gr.Error("Something went wrong. The log of the server says what. Please try again.") from error
