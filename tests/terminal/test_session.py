from __future__ import annotations

import signal
from collections.abc import Generator

import pytest

from chat.types import Chunk, FinishReason, GenerationFailed, GenerationParams, Prompt, PromptTooLong, Usage
from tests.fakes import FakeEngine
from tests.terminal.sessions import create_session


class InterruptedEngine(FakeEngine):
    """Someone presses Ctrl-C after the first words."""

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        def run() -> Generator[Chunk, None, None]:
            try:
                yield Chunk(text="Half a")
                signal.raise_signal(signal.SIGINT)
                yield Chunk()
                yield Chunk(text=" lie", finish_reason="stop", usage=Usage())
            except GeneratorExit:
                self.closed.append(0)
                raise

        return run()


class EndingEngine(FakeEngine):
    """Says its first reply, whose last chunk is the end."""

    def stream(self, prompt: Prompt, params: GenerationParams) -> Generator[Chunk, None, None]:
        return (chunk for chunk in self.replies[0] if isinstance(chunk, Chunk))


def test_the_engine_reads_the_whole_conversation():
    engine = FakeEngine([["One."], ["Two."]])
    session, emulator = create_session(engine)
    session.system_prompt = "Be brief."
    session.ask("first")
    session.ask("second")
    assert engine.prompts[1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "second"},
    ]
    assert "One." in emulator.screen()
    assert "Two." in emulator.screen()


def test_a_stopped_reply_is_kept_and_the_conversation_goes_on():
    """T9"""
    engine = InterruptedEngine()
    session, emulator = create_session(engine)
    session.ask("question")
    assert session.history[-1] == {"role": "assistant", "content": "Half a", "finish_reason": "cancelled"}
    assert engine.closed == [0]
    assert " s; /continue goes on." in emulator.screen()
    session.engine = FakeEngine([["Yes."]])
    session.ask("still there?")
    assert session.history[-1]["content"] == "Yes."


def test_ctrl_c_is_again_what_it_was_after_the_reply():
    before = signal.getsignal(signal.SIGINT)
    create_session(InterruptedEngine())[0].ask("question")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_failure_in_the_middle_keeps_what_came():
    session, emulator = create_session(FakeEngine([["Half a", GenerationFailed("It broke.")]]))
    with pytest.raises(GenerationFailed):
        session.ask("question")
    assert session.history[-1] == {"role": "assistant", "content": "Half a", "finish_reason": "cancelled"}
    assert "Half a" in emulator.screen()


def test_a_failure_before_the_first_word_leaves_the_history_as_it_was():
    session, _ = create_session(FakeEngine([["Fine."], [PromptTooLong(5000, 2048)]]))
    session.ask("question")
    before = list(session.history)
    with pytest.raises(PromptTooLong):
        session.ask("far too long")
    assert session.history == before


def test_a_thought_is_dimmed_and_apart_from_the_answer():
    """S13"""
    session, emulator = create_session(FakeEngine([[Chunk(thought="I wonder."), Chunk(text="I know.")]]))
    session.ask("question")
    assert emulator.styles("I wonder.").italics
    assert not emulator.styles("I know.").italics
    assert (
        emulator.screen().index("I wonder.")
        < emulator.screen().index("Thought for")
        < emulator.screen().index("I know.")
    )
    assert session.history[-1]["content"] == "I know."


@pytest.mark.parametrize(
    ("finish_reason", "said"),
    [
        ("stop", "12.3 tokens/s · 45 tokens · first after 0.4 s · context 1,245 of 2,048"),
        ("stop", "The 2 oldest messages no longer fit and were left out."),
        ("length", "Stopped at the limit of tokens; /continue goes on."),
    ],
)
def test_what_a_reply_cost_and_why_it_ended_stands_below_it(finish_reason: FinishReason, said: str):
    """C3"""
    last = Chunk(text="Yes.", finish_reason=finish_reason, usage=Usage(1200, 0, 45, 0.4, 12.3, messages_left_out=2))
    session, emulator = create_session(EndingEngine([[last]]))
    session.ask("question")
    assert emulator.screen().index("Yes.") < emulator.screen().index(said)


def test_control_characters_of_a_reply_do_not_drive_the_terminal():
    session, emulator = create_session(FakeEngine([["before \x1b[2J\x1b]0;title\x07 \x9b31mafter\r!"]]))
    session.ask("question")
    assert "\x1b[2J" not in emulator.written
    assert "\x07" not in emulator.written
    assert "\x9b" not in emulator.written
    assert "before ␛[2J" in emulator.screen()


def test_a_stream_in_small_pieces_ends_on_the_screen_as_it_was_said():
    said = "".join(
        f"Sentence {number} of a reply, which is longer than the screen is high.\n\n" for number in range(60)
    )
    session, emulator = create_session(FakeEngine([[*said]]))
    session.ask("question")
    assert [line for line in emulator.text().split("\n") if line.startswith("Sentence")] == said.split("\n\n")[:-1]
