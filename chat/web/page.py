"""The web page: its components, and which action each event takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import Dependency
from starlette.middleware import Middleware

from chat.accounts import read_accounts
from chat.settings import Settings
from chat.space import on_space
from chat.types import Engine
from chat.web import keeping, view
from chat.web.actions import Actions
from chat.web.limits import Limits
from chat.web.login import Doors, Login
from chat.web.panel import create_panel

_HERE = Path(__file__).parent
_MOST_PAGES = 1000
_PRIVATE: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    # What they show is ready for the browser. Gradio would go over the whole conversation for each piece of a reply.
    "postprocess": False,
}

_EXAMPLES = [
    "Explain why the sky is blue, in two sentences.",
    "Give me three tips for a good night's sleep.",
    "What is photosynthesis?",
    "Write a Python function that tells whether a word is a palindrome.",
]
_GREETING = "## What can I do for you?\n\nWhat a language model says can be wrong."


def create_page(engine: Engine, settings: Settings, limits: Limits) -> gr.Blocks:
    """Return the page, ready to launch; it can be opened before `engine` is ready."""
    actions = Actions(engine, settings, limits)
    page = _Page(settings)
    with page:
        history = gr.State([])
        with gr.Sidebar(open=False, position="right", elem_id="settings"):
            panel = create_panel(settings)
            if on_space():
                gr.DuplicateButton("Duplicate this Space")
        with gr.Row(elem_id="top"):
            heading = gr.HTML(view.heading(settings.title), elem_id="heading")
            mode = gr.Button("Complete a text", elem_id="mode", size="sm", scale=0, visible=False)
            new = gr.Button("New chat", elem_id="new", size="sm", scale=0)
        chat = _create_chat()
        with gr.Column(elem_id="completion"):
            text, go_on, halt = _create_completion()
        with gr.Row(elem_id="box"):
            message, send, stop = _create_box()
        status = gr.HTML(view.waiting_line(engine.status()), elem_id="status")

        shown = [message, history, chat, status]
        changes = [
            gr.on([message.submit, send.click], actions.submit, [message, history, *panel], shown, **_PRIVATE),
            chat.example_select(actions.pick, [history, *panel], shown, **_PRIVATE),
            chat.retry(actions.retry, [history, *panel], shown, **_PRIVATE),
            chat.edit(actions.edit, [history, *panel], shown, **_PRIVATE),
            chat.option_select(actions.go_on, [history, *panel], shown, **_PRIVATE),
            chat.undo(actions.undo, history, shown, **_PRIVATE),
            gr.on([new.click, chat.clear], actions.clear, None, shown, **_PRIVATE),
        ]
        go_on.click(actions.complete, [text, *panel], [text, status], **_PRIVATE)
        mode.click(None, js="() => document.body.classList.toggle('completing')")
        # Not in the queue: a stop must not wait for what it is to stop.
        gr.on([stop.click, halt.click], actions.stop, queue=False, **_PRIVATE)
        page.unload(actions.stop)
        timer = gr.Timer(active=False)
        model = [timer, status, heading, mode, *panel[1:]]
        # Nor is this: there are more pages that wait for the model than places in the queue.
        gr.on([page.load, timer.tick], actions.watch, status, model, queue=False, **_PRIVATE)
        _keep(page, changes, history, chat)
        _add_endpoint(actions, message, history)
    return page


class _Page(gr.Blocks):
    """Blocks that know how they want to be launched."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(title=settings.title or "Chat", analytics_enabled=False, fill_height=True, fill_width=True)
        self._settings = settings
        self._accounts = read_accounts(settings)
        # Nobody waits in Gradio's line, where no place is shown: everybody gets through to the engine's.
        self.queue(max_size=settings.queue_size, default_concurrency_limit=None)
        # Gradio looks for something to do every millisecond, which takes a tenth of a core from the model.
        self._queue.sleep_when_free = self._queue.progress_update_sleep_when_free = 0.02
        # Nobody sees Gradio's statistics of the last 10,000 events, which it would sum up again after each.
        self._queue.ANALYTICS_MAX_EVENTS, self._queue.ANAYLTICS_CACHE_FREQUENCY = 1, sys.maxsize

    def launch(self, *args: Any, app_kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Launch with the page's own look, without anything from another host."""
        own: dict[str, Any] = {
            "theme": gr.themes.Base(
                primary_hue="indigo",
                neutral_hue="zinc",
                radius_size="lg",
                font=["system-ui", "sans-serif"],
                font_mono=["ui-monospace", "monospace"],
            ),
            "css_paths": _HERE / "style.css",
            "js": (_HERE / "page.js").read_text(),
            "footer_links": ["api"] if on_space() else [],
            "run_history": False,
            "enable_monitoring": False,
            "ssr_mode": False,
            # A reply holds a thread while it is written; some must be left for everything else.
            "max_threads": self._settings.queue_size + 24,
            "max_file_size": 0,
            # Of each page it ever served Gradio keeps 90 KiB, and by itself would keep 10,000 of them.
            "state_session_capacity": _MOST_PAGES,
            "app_kwargs": {**(app_kwargs or {}), "middleware": [Middleware(Doors)]},
        }
        if self._accounts:
            own["auth"] = Login(self._accounts).check
            own["auth_message"] = "After some wrong passwords, each further try takes a few seconds."
        return super().launch(*args, **(own | options))


def _create_chat() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="chat",
        show_label=False,
        container=False,
        scale=1,
        height="100%",
        buttons=["copy"],
        editable="user",
        # A thought and its answer are copied apart.
        group_consecutive_messages=False,
        latex_delimiters=[{"left": left, "right": right, "display": left != r"\("} for left, right in view.MATH],
        placeholder=_GREETING,
        examples=[{"text": text} for text in _EXAMPLES],
    )


def _create_box() -> tuple[gr.Textbox, gr.Button, gr.Button]:
    message = gr.Textbox(
        elem_id="message",
        label="Message",
        show_label=False,
        container=False,
        placeholder="Write a message",
        max_lines=10,
        autofocus=True,
        scale=1,
    )
    send = gr.Button("Send", elem_id="send", variant="primary", scale=0, min_width=40)
    stop = gr.Button("Stop", elem_id="stop", scale=0, min_width=40)
    return message, send, stop


def _create_completion() -> tuple[gr.Textbox, gr.Button, gr.Button]:
    """Create what a base model is best at: one text that grows. Shown in place of the chat when asked for."""
    text = gr.Textbox(
        elem_id="text",
        label="Text",
        show_label=False,
        container=False,
        placeholder="Write how a text begins. The model goes on with it.",
        lines=12,
        max_lines=24,
    )
    go_on = gr.Button("Continue", elem_id="continue")
    halt = gr.Button("Stop", elem_id="halt")
    return text, go_on, halt


def _keep(page: gr.Blocks, changes: Sequence[Dependency], history: gr.State, chat: gr.Chatbot) -> None:
    """Keep the conversation in the browser's tab, and bring it back when the page is loaded."""
    kept = gr.Textbox(visible=False)
    # Not in the queue, which has places for replies only.
    for change in changes:
        change.then(keeping.keep, history, kept, queue=False, **_PRIVATE)
    kept.change(None, kept, None, js=keeping.WRITE)
    page.load(keeping.restore, kept, [history, chat], js=keeping.READ, queue=False, **_PRIVATE)


def _add_endpoint(actions: Actions, message: gr.Textbox, history: gr.State) -> None:
    """Offer `/chat` to gradio_client: a message in, the growing reply out, the history kept for each client."""
    reply = gr.Textbox(label="Reply", visible=False)
    gr.Button(visible=False).click(actions.chat, [message, history], [reply, history], api_name="chat")
