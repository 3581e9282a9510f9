"""What the page's events do: Gradio's values in, new values for the page out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import chain, repeat
from typing import Any, TypeAlias, cast

import gradio as gr

from chat import conversation
from chat.conversation import History
from chat.settings import Settings
from chat.types import Engine, GenerationParams, InvalidRequest
from chat.web import view
from chat.web.guard import unguard
from chat.web.limits import Limits, address_of
from chat.web.panel import fill_panel, read_panel, skip_panel
from chat.web.toasts import toasts
from chat.web.turns import Turns, Update, Visitor

Outputs: TypeAlias = tuple[Any, History, view.Shown, str]
"""New values of the message box, the history, the chat and the line of status."""

_LOADING_S, _FAILED_S = 0.5, 2.0  # how often a page asks for a model that is not there


class Actions:
    """What the events do. A visitor is one page load, or one API client: Gradio's session.

    `panel` is what stands in the fields of the settings panel.
    """

    def __init__(self, engine: Engine, settings: Settings, limits: Limits) -> None:
        self._engine, self._settings = engine, settings
        self._turns = Turns(engine, limits)

    def submit(self, text: str, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Answer what is in the message box; it is emptied once the question is accepted."""
        with toasts():
            yield from self._answer(history, conversation.ask(history, text), request, panel, text)

    def pick(
        self, event: gr.SelectData, history: History, request: gr.Request, *panel: str
    ) -> Generator[Outputs, None, None]:
        """Answer an example."""
        yield from self.submit(event.value["text"], history, request, *panel)

    def retry(self, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Answer the last question again."""
        with toasts():
            yield from self._answer(history, conversation.retry(history), request, panel)

    def edit(
        self, event: gr.EditData, history: History, request: gr.Request, *panel: str
    ) -> Generator[Outputs, None, None]:
        """Give a question a new text, drop what follows, and answer it."""
        with toasts():
            text, place = unguard(event.value), view.message_index(history, cast(int, event.index))
            yield from self._answer(history, conversation.edit(history, place, text), request, panel, text)

    def go_on(self, history: History, request: gr.Request, *panel: str) -> Generator[Outputs, None, None]:
        """Continue the last reply."""
        with toasts():
            yield from self._answer(history, history, request, panel)

    def complete(self, text: str, request: gr.Request, *panel: str) -> Generator[tuple[str, str], None, None]:
        """Go on with a text as it stands, without a chat template; it grows where it was written."""
        with toasts():
            if not text:
                raise InvalidRequest("There is no text to go on with. Write its beginning first.")
            begun: History = [{"role": "assistant", "content": text}]
            _, params = read_panel(panel)
            with closing(self._turns.take(_visitor(request), begun, begun, text, params)) as turn:
                for update in turn:
                    yield update.reply.content, self._line(update)

    def chat(self, message: str, history: History, request: gr.Request) -> Generator[tuple[str, History], None, None]:
        """Answer a message; the conversation goes on with the next call of the same client."""
        with toasts():
            asked = conversation.ask(history, message)
            prompt = conversation.prompt(asked, self._settings.system_prompt)
            with closing(self._turns.take(_visitor(request), history, asked, prompt, GenerationParams())) as turn:
                for update in turn:
                    yield update.reply.content, update.history

    def undo(self, history: History, request: gr.Request) -> Outputs:
        """Take the last question back into the message box."""
        with toasts():
            self._turns.check_idle(_visitor(request))
            left, text = conversation.undo(history)
            return text, left, view.show(left), view.waiting_line(self._engine.status())

    def clear(self, request: gr.Request) -> Outputs:
        """Begin a new conversation."""
        with toasts():
            self._turns.check_idle(_visitor(request))
            return gr.skip(), [], [], view.waiting_line(self._engine.status())

    def stop(self, request: gr.Request) -> None:
        """Let the reply end here, with what it has."""
        self._turns.stop(_visitor(request))

    def watch(self, line: str, request: gr.Request) -> tuple[Any, ...]:
        """Show what the model does; once it is there its name, whether it completes texts, and its defaults.

        The first value is the timer that asks again as long as there is no model. A page that waits in one long
        event would take one of the few that Gradio runs at once.
        """
        status = self._engine.status()
        has_reply = self._turns.is_busy(_visitor(request)) or view.is_about_reply(line)
        shown = gr.skip() if has_reply else view.waiting_line(status)
        if status.info is None:
            timer = gr.Timer(_FAILED_S if status.error else _LOADING_S, active=True)
            return timer, shown, gr.skip(), gr.skip(), *skip_panel()
        heading, mode = view.heading(self._settings.title or status.info.name), gr.update(visible=status.info.is_base)
        return gr.Timer(active=False), shown, heading, mode, *fill_panel(status.info)

    def _answer(
        self, before: History, asked: History, request: gr.Request, panel: Sequence[str], typed: str = ""
    ) -> Generator[Outputs, None, None]:
        """Answer or continue `asked`; what was typed leaves the message box, and comes back if nothing came of it."""
        system_prompt, params = read_panel(panel)
        prompt = conversation.prompt(asked, system_prompt)
        settled = view.show(asked[:-1] if conversation.can_continue(asked) else asked)
        # Emptied once: what is written there meanwhile stays.
        boxes = chain([""] if typed else [], repeat(view.Unchanged()))
        with closing(self._turns.take(_visitor(request), before, asked, prompt, params)) as turn:
            for update in turn:
                box = typed if update.error and typed and update.history is before else next(boxes)
                yield box, update.history, _show(update, settled), self._line(update)

    def _line(self, update: Update) -> str:
        if update.error:
            return view.failed_line(update.error)
        if not update.is_over:
            return view.growing_line(update.reply)
        info = self._engine.status().info
        return view.ended_line(update.reply, info.window if info else 0)


def _show(update: Update, settled: list[view.Settled]) -> view.Shown:
    """Return the whole conversation as it is shown; `settled` is what cannot change before the turn is over."""
    return view.show(update.history) if update.is_over else [*settled, *view.show_growing(update.history[-1])]


def _visitor(request: gr.Request) -> Visitor:
    return Visitor(request.session_hash or "", address_of(request.client))
