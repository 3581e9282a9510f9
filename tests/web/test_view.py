from __future__ import annotations

import pytest
from gradio_client.utils import traverse

from chat.reply import Reply
from chat.types import GenerationFailed, GenerationParams, ModelInfo, Progress, Status, Usage
from chat.web import view

THOUGHT = {"role": "assistant", "content": "One.", "thought": "Hm.", "thought_s": 2.34, "finish_reason": "stop"}
HISTORY = [{"role": "user", "content": "A"}, THOUGHT, {"role": "user", "content": "B"}]


def text_of(shown):
    (block,) = shown.content
    return block["text"]


def test_text_keeps_every_space():
    """G5"""
    (shown,) = view.show([{"role": "user", "content": "  two\n\tand a tab  "}])
    assert text_of(shown) == "  two\n\tand a tab  "


def test_gradio_does_not_walk_through_what_is_settled():
    """Or each piece of a reply would cost more the longer the conversation is."""
    shown, visited = view.show(HISTORY), []
    traverse(shown, lambda found: found, visited.append)
    assert visited == [shown, *shown]


def test_a_thought_is_a_message_of_its_own_before_the_answer():
    """G3"""
    thought, answer = view.show([THOUGHT])
    assert thought.metadata == {"title": "Thought for 2.3 s", "status": "done"}
    assert (text_of(thought), text_of(answer)) == ("Hm.", "One.")


def test_only_a_growing_thought_is_pending():
    """G13"""
    growing = {"role": "assistant", "content": "", "thought": "Hm", "thought_s": 1.2, "finish_reason": "cancelled"}
    (pending,) = view.show_growing(growing)
    assert pending["metadata"] == {"title": "Thinking for 1 s", "status": "pending"}
    (stopped,) = view.show([growing])
    assert stopped.metadata["status"] == "done"
    assert view.show_growing(growing | {"content": "One"})[0]["metadata"]["status"] == "done"


def test_what_is_shown_leads_back_to_the_history():
    """G12"""
    assert [view.message_index(HISTORY, shown) for shown in range(4)] == [0, 1, 1, 2]


@pytest.mark.parametrize(("finish_reason", "offered"), [("stop", False), ("length", True), ("cancelled", True)])
def test_only_a_cut_last_reply_offers_to_go_on(finish_reason, offered):
    """T9"""
    cut = THOUGHT | {"finish_reason": finish_reason}
    assert bool(view.show([*HISTORY, cut])[-1].options) == offered
    assert not any(shown.options for shown in view.show([cut, *HISTORY]))


def test_the_line_says_what_is_done():
    reply = Reply(progress=Progress("reading", 1200, 3400))
    assert view.growing_line(reply) == '<span class="busy">Reading 1,200 of 3,400 tokens</span>'
    assert view.growing_line(Reply()) == '<span class="busy">Waiting</span>'
    assert view.growing_line(Reply(thought="Hm")) == '<span class="busy">Thinking</span>'
    assert view.growing_line(Reply("One", "Hm")) == '<span class="busy">Writing</span>'


def test_the_line_says_what_a_reply_cost_and_why_it_ended():
    line = view.ended_line(Reply("One", finish_reason="length", usage=Usage(900, 800, 50, 0.25, 31.4, 2)), 2048)
    for part in (
        "31.4 tokens/s",
        "context 950 of 2,048",
        "800 cached",
        "Cut at the longest reply",
        "2 oldest messages",
    ):
        assert part in line
    assert "Cut" not in view.ended_line(Reply("One", finish_reason="stop", usage=Usage()), 2048)
    assert view.ended_line(Reply("One", seconds=3.21), 2048) == '<span class="ended">Stopped after 3.2 s</span>'


def test_the_line_says_what_the_engine_waits_for():
    info = ModelInfo("<b>", "cpu", "float32", 2048, GenerationParams())
    assert view.waiting_line(Status("ready", info=info)).startswith('<span class="idle">&lt;b&gt; · cpu float32')
    assert "Loading 50%" in view.waiting_line(Status("loading", progress=Progress("loading", 1, 2, "Loading")))
    assert "No &lt;model&gt;" in view.waiting_line(Status("failed", error=GenerationFailed("No <model>")))


def test_html_in_a_name_or_an_error_stays_text():
    """G6"""
    assert view.heading("<script>") == "<h1>&lt;script&gt;</h1>"
    assert "&lt;img&gt;" in view.failed_line(GenerationFailed("<img>"))
    assert view.failed_line(ValueError("secret")) == '<span class="failed">The reply failed.</span>'
