from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat import transcript
from chat.conversation import History
from chat.types import InvalidRequest

HISTORY: History = [
    {"role": "user", "content": "vector<int>\n\t日本 🎉"},
    {
        "role": "assistant",
        "content": "$5 and $6",
        "thought": "Hm.",
        "thought_s": 1.5,
        "finish_reason": "cancelled",
    },
]


@pytest.mark.parametrize("system_prompt", ["", "Be brief."])
def test_what_is_saved_is_loaded(tmp_path: Path, system_prompt: str):
    path = tmp_path / "talk.json"
    transcript.save(path, HISTORY, system_prompt)
    assert transcript.load(path) == (HISTORY, system_prompt)


def test_the_file_is_what_other_programs_read(tmp_path: Path):
    path = tmp_path / "talk.json"
    transcript.save(path, HISTORY, "Be brief.")
    messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]


def test_saving_again_takes_the_place_of_the_earlier_conversation(tmp_path: Path):
    path = tmp_path / "talk.json"
    transcript.save(path, [], "")
    transcript.save(path, HISTORY, "")
    assert transcript.load(path)[0] == HISTORY
    assert list(tmp_path.iterdir()) == [path]


def test_saving_never_overwrites_another_file(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("Buy milk.")
    with pytest.raises(InvalidRequest, match="holds something else"):
        transcript.save(path, HISTORY, "")
    assert path.read_text() == "Buy milk."


def test_a_place_that_cannot_be_written_says_why(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"cannot be written: No such file or directory\."):
        transcript.save(tmp_path / "missing" / "talk.json", HISTORY, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"messages": "hi"}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": [{"role": "robot", "content": "hi"}]}',
        '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
    ],
)
def test_a_file_that_is_no_conversation_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "talk.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"talk\.json is no saved conversation"):
        transcript.load(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"There is no file .*talk\.json"):
        transcript.load(tmp_path / "talk.json")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "talk.json"
    path.write_bytes(b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}')
    with pytest.raises(InvalidRequest, match="is no saved conversation"):
        transcript.load(path)
