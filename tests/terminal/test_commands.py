from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat.terminal.commands import COMMANDS, obey
from chat.types import GenerationFailed, GenerationParams, InvalidRequest
from tests.fakes import FakeEngine
from tests.terminal.sessions import create_session


@pytest.mark.parametrize("line", ["hello", "/usr/bin is what?", " /clear", "clear it", "", "/"])
def test_other_lines_are_messages(line: str):
    session, _ = create_session(FakeEngine())
    assert not obey(session, line)


@pytest.mark.parametrize("line", ["/clear", "clear", " clear "])
def test_clear_begins_a_new_conversation(line: str):
    session, emulator = create_session(FakeEngine())
    session.ask("question")
    assert obey(session, line)
    assert session.history == []
    assert emulator.screen() == "fake/model · cpu float32 · window 2,048 tokens"


@pytest.mark.parametrize("line", ["/exit", "stop"])
def test_exit_leaves(line: str):
    with pytest.raises(EOFError):
        obey(create_session(FakeEngine())[0], line)


def test_an_unknown_command_says_where_to_look():
    with pytest.raises(InvalidRequest, match="There is no /frobnicate; /help lists"):
        obey(create_session(FakeEngine())[0], "/frobnicate now")


def test_help_lists_every_command():
    session, emulator = create_session(FakeEngine())
    obey(session, "/help")
    assert all(f"/{name}" in emulator.screen() for name in COMMANDS)


def test_retry_asks_the_same_again():
    engine = FakeEngine([["One."], ["Two."]])
    session, _ = create_session(engine)
    session.ask("question")
    obey(session, "/retry")
    assert engine.prompts[1] == engine.prompts[0]
    assert [message["content"] for message in session.history] == ["question", "Two."]


def test_undo_takes_back_the_question_and_its_reply():
    session, emulator = create_session(FakeEngine())
    session.ask("first")
    session.ask("second")
    obey(session, "/undo")
    assert [message["content"] for message in session.history] == ["first", "Hello there."]
    assert "Took back: second" in emulator.screen()


@pytest.mark.parametrize(("line", "typed"), [("/edit better", []), ("/edit", ["better"])])
def test_edit_asks_a_changed_question(line: str, typed: list[str]):
    engine = FakeEngine()
    session, _ = create_session(engine, *typed)
    session.ask("good")
    obey(session, line)
    assert engine.prompts[1] == [{"role": "user", "content": "better"}]
    assert len(session.history) == 2


def test_edit_to_nothing_changes_nothing():
    session, _ = create_session(FakeEngine(), "")
    session.ask("good")
    before = list(session.history)
    with pytest.raises(InvalidRequest, match="empty"):
        obey(session, "/edit")
    assert session.history == before


def test_continue_goes_on_with_the_last_reply():
    """T9"""
    engine = FakeEngine([["Once upon"], [" a time."]])
    session, emulator = create_session(engine)
    session.ask("story")
    obey(session, "/continue")
    assert engine.prompts[1][-1] == {"role": "assistant", "content": "Once upon"}
    assert session.history[-1]["content"] == "Once upon a time."
    assert "Once upon a time." in emulator.screen()


def test_complete_goes_on_with_a_text_and_then_with_what_it_has_become():
    engine = FakeEngine([["Hello."], [" upon", " a **time**"], [", and on"]])
    session, emulator = create_session(engine)
    session.ask("question")
    history = session.history
    obey(session, "/complete Once")
    assert "Once upon a **time**" in emulator.screen()
    obey(session, "/complete")
    assert "Once upon a **time**, and on" in emulator.screen()
    assert engine.prompts[1:] == ["Once", "Once upon a **time**"]
    assert session.history is history


def test_complete_keeps_what_came_before_a_failure():
    engine = FakeEngine([[" upon", GenerationFailed("No.")], [" a time"]])
    session, _ = create_session(engine)
    with pytest.raises(GenerationFailed):
        obey(session, "/complete Once")
    obey(session, "/complete")
    assert engine.prompts[1] == "Once upon"


def test_complete_dims_what_the_text_began_with():
    session, emulator = create_session(FakeEngine([[" upon a time"]]))
    obey(session, "/complete Once")
    assert "\x1b[2mOnce\x1b[0m upon a time" in emulator.written


def test_complete_without_a_text_says_how_to_begin():
    with pytest.raises(InvalidRequest, match=r"/complete TEXT begins one\."):
        obey(create_session(FakeEngine())[0], "/complete")


@pytest.mark.parametrize("line", ["/retry", "/undo", "/edit", "/continue"])
def test_what_needs_a_message_says_so(line: str):
    with pytest.raises(InvalidRequest, match=r"Send a message first\."):
        obey(create_session(FakeEngine())[0], line)


def test_system_sets_shows_and_removes_the_system_prompt():
    session, emulator = create_session(FakeEngine())
    obey(session, "/system Be brief.")
    assert session.system_prompt == "Be brief."
    obey(session, "/system")
    assert session.system_prompt == "Be brief."
    assert "System prompt: Be brief." in emulator.screen()
    obey(session, "/system none")
    assert session.system_prompt == ""


@pytest.mark.parametrize("line", ["/set temperature 0.2", "/set temperature=0.2", "/set  temperature   0.2 "])
def test_set_changes_how_the_next_reply_is_made(line: str):
    engine = FakeEngine()
    session, _ = create_session(engine)
    obey(session, line)
    session.ask("question")
    assert engine.params == [GenerationParams(temperature=0.2)]


def test_set_takes_names_as_the_flags_spell_them():
    session, _ = create_session(FakeEngine())
    obey(session, "/set max-new-tokens 5")
    assert session.params.max_new_tokens == 5


@pytest.mark.parametrize(
    ("line", "stop"),
    [("/set stop END", ("END",)), ("/set stop a=b", ("a=b",)), ('/set stop ["a", "\\n"]', ("a", "\n"))],
)
def test_set_takes_one_stop_text_or_a_list(line: str, stop: tuple[str, ...]):
    session, _ = create_session(FakeEngine())
    obey(session, line)
    assert session.params.stop == stop


def test_set_none_goes_back_to_the_models_own_value():
    session, emulator = create_session(FakeEngine())
    obey(session, "/set temperature 0.2")
    obey(session, "/set stop END")
    obey(session, "/set temperature none")
    obey(session, "/set stop none")
    assert session.params == GenerationParams()
    assert "temperature = 0.7 (the model's own)" in emulator.screen()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/set temperature 9", "temperature: '9' is not allowed. Input should be less than or equal to 5."),
        ("/set temperature warm", "temperature: 'warm' is not allowed."),
        ("/set warmth 1", "There is no setting warmth. There are max_new_tokens, temperature,"),
    ],
)
def test_set_refuses_a_bad_value_and_keeps_the_old(line: str, message: str):
    session, _ = create_session(FakeEngine())
    with pytest.raises(InvalidRequest) as caught:
        obey(session, line)
    assert message in str(caught.value)
    assert session.params == GenerationParams()


def test_set_alone_lists_every_setting():
    session, emulator = create_session(FakeEngine())
    obey(session, "/set")
    assert all(f"{name} = " in emulator.screen() for name in GenerationParams.model_fields)


def test_a_saved_conversation_can_be_loaded(tmp_path: Path):
    path = tmp_path / "talk.json"
    session, _ = create_session(FakeEngine([["日本 🎉"]]))
    session.system_prompt = "Be brief."
    session.ask("question")
    obey(session, f"/save {path}")
    other, emulator = create_session(FakeEngine())
    obey(other, f"/load {path}")
    assert (other.history, other.system_prompt) == (session.history, "Be brief.")
    assert "日本 🎉" in emulator.screen()
    assert "> question" in emulator.screen()


def test_a_bad_file_loses_nothing(tmp_path: Path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"messages": [{"role": "robot", "content": "hi"}]}))
    session, _ = create_session(FakeEngine())
    session.ask("question")
    before = list(session.history)
    with pytest.raises(InvalidRequest, match="no saved conversation"):
        obey(session, f"/load {path}")
    assert session.history == before


@pytest.mark.parametrize("line", ["/save", "/load"])
def test_a_file_command_without_a_name_says_what_is_missing(line: str):
    with pytest.raises(InvalidRequest, match="needs the name of a file"):
        obey(create_session(FakeEngine())[0], line)
