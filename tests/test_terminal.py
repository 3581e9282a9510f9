"""The whole program in a pseudo-terminal, as a person uses it."""

from __future__ import annotations

import json
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.pseudo_terminal import PseudoTerminal

CTRL_C, CTRL_D, ENTER, ESCAPE, UP, TAB = "\x03", "\x04", "\r", "\x1b", "\x1b[A", "\t"
PROMPT = "> Write a message, or /help"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def real_chat(home: Path, *arguments: str) -> PseudoTerminal:
    """Run the program with the default model."""
    return PseudoTerminal([sys.executable, "-m", "chat", *arguments], {"XDG_STATE_HOME": str(home)})


def chat(home: Path, replies: object, *arguments: str, columns: int = 80, rows: int = 24) -> PseudoTerminal:
    command = [sys.executable, "-m", "tests.fake_chat", json.dumps(replies), *arguments]
    return PseudoTerminal(command, {"XDG_STATE_HOME": str(home)}, columns, rows)


def test_a_conversation_streams_stops_and_goes_on(home: Path):
    """T1, T4, T9"""
    with chat(home, [["Half an ", None, "answer"], ["A whole answer."]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("first" + ENTER)
        screen = terminal.wait_for("Half an")
        assert PROMPT not in screen
        terminal.send(CTRL_C)
        terminal.wait_for(" s; /continue goes on.")
        terminal.wait_for(PROMPT)
        terminal.send("second" + ENTER)
        terminal.wait_for("A whole answer.")
        terminal.wait_for(PROMPT)
        terminal.send(f"/save {home}/talk.json{ENTER}")
        terminal.wait_for("Saved 4 messages")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.wait_for_end() == 0
    contents = [message["content"] for message in json.loads((home / "talk.json").read_text())["messages"]]
    assert contents == ["first", "Half an ", "second", "A whole answer."]


def test_ctrl_c_pressed_again_and_again_does_not_lose_the_conversation(home: Path):
    with chat(home, [["Half an ", None], ["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("first" + ENTER)
        terminal.wait_for("Half an")
        for _ in range(20):
            terminal.interrupt()
        terminal.wait_for(PROMPT)
        terminal.send("second" + ENTER)
        terminal.wait_until(lambda screen: screen.count("second") == 2)


def test_the_model_stands_on_top(home: Path):
    with chat(home, [["x"]]) as terminal:
        assert terminal.wait_for(PROMPT).startswith("fake/model · cpu float32 · window 2,048 tokens\n>")


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(home: Path):
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("unwanted")
        terminal.wait_for("> unwanted")
        terminal.send(CTRL_C)
        terminal.wait_for(PROMPT)
        terminal.interrupt()
        terminal.send("wanted" + ENTER)
        terminal.wait_until(lambda screen: screen.count("wanted") == 2)
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("new_line", [ESCAPE + ENTER, "\\" + ENTER])
def test_a_message_can_have_many_lines(home: Path, new_line: str):
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send(f"one{new_line}two{ENTER}")
        terminal.wait_for("> one\n  two\n\none\ntwo\n")


def test_pasted_lines_are_one_message(home: Path):
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("\x1b[200~one\ntwo\n\x1b[201~")
        terminal.send("three" + ENTER)
        terminal.wait_for("\none\ntwo\nthree\n")


def test_earlier_messages_come_back_in_the_next_run(home: Path):
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("from the first run" + ENTER)
        terminal.wait_for("tokens/s")
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send(UP)
        terminal.wait_for("> from the first run")
    assert stat.S_IMODE((home / "streaming-chat" / "history").stat().st_mode) == 0o600


def test_what_is_typed_during_a_reply_waits_for_the_prompt(home: Path):
    """G20"""
    with chat(home, [["Thinking ", None]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("question" + ENTER)
        terminal.wait_for("Thinking")
        terminal.send("typed ahead")
        terminal.send(CTRL_C)
        screen = terminal.wait_for("> typed ahead")
        assert screen.count("typed ahead") == 1


def test_edit_puts_the_last_question_into_the_line(home: Path):
    with chat(home, [["ECHO"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("good" + ENTER)
        terminal.wait_for("tokens/s")
        terminal.send(f"/edit{ENTER}")
        terminal.wait_for("> good")
        terminal.send("ness" + ENTER)
        terminal.wait_for("\ngoodness\n")


def test_tab_completes_a_command(home: Path):
    with chat(home, [["x"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("/he" + TAB + ENTER)
        terminal.wait_for("List the commands.")


def test_a_failure_says_what_went_wrong_and_the_conversation_goes_on(home: Path):
    with chat(home, [[{"error": "No room for this."}], ["Fine."]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("question" + ENTER)
        terminal.wait_for("No room for this.")
        terminal.send("/set temperature 9" + ENTER)
        terminal.wait_for("temperature: '9' is not allowed.")
        terminal.send("/retry" + ENTER)
        terminal.wait_for("There is nothing to retry yet.")
        terminal.send("again" + ENTER)
        terminal.wait_for("Fine.")


@pytest.mark.parametrize("columns", [30, 79, 200])
def test_a_long_reply_can_be_scrolled_back_to_at_any_width(home: Path, columns: int):
    points = [f"- point {number} 日本語のテキスト 🎉 and some more words" for number in range(40)]
    code = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(40)) + "\n```"
    with chat(home, [[*("\n".join(points) + "\n\n" + code)]], columns=columns, rows=15) as terminal:
        terminal.wait_for("> Write a message")
        terminal.send("list" + ENTER)
        terminal.wait_for("tokens/s")
        text = terminal.emulator.text()
    assert [text.count(f"point {number} ") for number in range(40)] == [1] * 40
    assert [text.count(f"value_{number} = {number}\n") for number in range(40)] == [1] * 40


def test_a_text_that_grows_can_be_stopped_and_goes_on(home: Path):
    """T1, T9"""
    with chat(home, [[" upon", None], [" a time"]]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("/complete Once" + ENTER)
        terminal.wait_for("Once upon")
        terminal.send(CTRL_C)
        terminal.wait_for(" s; /complete goes on.")
        terminal.wait_for(PROMPT)
        terminal.send("/complete" + ENTER)
        terminal.wait_for("Once upon a time")
        terminal.wait_for(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.wait_for_end() == 0


def test_a_terminal_that_changes_its_width_during_a_reply_loses_no_words(home: Path):
    words = [f"word{number}" for number in range(60)]
    with chat(home, [[" ".join(words[:30]) + " ", None, "x"]], columns=60) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("words" + ENTER)
        terminal.wait_for("word29")
        terminal.resize(100, 24)
        terminal.send(CTRL_C)
        terminal.wait_for("Stopped")
        assert all(word in terminal.emulator.text() for word in words[:30])


def test_a_question_at_a_terminal_prints_text_without_control_characters(home: Path):
    with chat(home, [["**plain** \x1b[2Jtext"]], "question") as terminal:
        assert terminal.wait_for_end() == 0
        assert terminal.emulator.screen() == "**plain** ␛[2Jtext"
        assert "\x1b[2J" not in terminal.emulator.written


def test_ctrl_c_stops_a_printed_reply(home: Path):
    with chat(home, [["Half an ", None]], "question") as terminal:
        terminal.wait_for("Half an")
        terminal.send(CTRL_C)
        assert terminal.wait_for_end() == -signal.SIGINT
        assert terminal.emulator.text() == "Half an ^C"


@pytest.mark.real
def test_the_real_model_streams_stops_and_goes_on(home: Path):
    """T1, T9"""
    lengths: set[int] = set()

    def has_grown(screen: str) -> bool:
        said = screen.partition("> Write a story")[2]
        lengths.add(len(said) if "Reading" not in said and "Waiting" not in said else 0)
        return len(lengths) >= 5

    with real_chat(home, "--temperature", "0") as terminal:
        terminal.wait_for(PROMPT, within_s=250)
        terminal.send("Write a story about the sea." + ENTER)
        terminal.wait_until(has_grown, within_s=250)
        terminal.send(CTRL_C)
        terminal.wait_for(" s; /continue goes on.")
        terminal.send("What is the capital of France?" + ENTER)
        terminal.wait_until(lambda screen: "Paris" in screen.partition("capital of France?")[2], within_s=250)
        terminal.wait_for(PROMPT, within_s=250)
        terminal.send(CTRL_D)
        assert terminal.wait_for_end() == 0


@pytest.mark.real
def test_ctrl_c_leaves_quietly_while_the_model_loads(home: Path):
    with real_chat(home) as terminal:
        terminal.wait_for("Loading the weights", within_s=250)
        terminal.send(CTRL_C)
        assert terminal.wait_for_end() == -signal.SIGINT
        assert terminal.emulator.text() == ""


@pytest.mark.real
def test_the_real_model_knows_the_capital_of_france(home: Path):
    with real_chat(home, "What is the capital of France?", "--temperature", "0") as terminal:
        assert terminal.wait_for_end(within_s=250) == 0
        assert terminal.emulator.screen() == "The capital of France is Paris."
