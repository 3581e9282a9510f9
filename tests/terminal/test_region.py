from __future__ import annotations

import random

import pytest
from rich.text import Text

from chat.terminal.region import Line, Region, lay_out
from tests.emulator import Emulator, create_console


def lines(*texts: str) -> list[Line]:
    return [Line(text, len(text)) for text in texts]


def region(columns: int = 20, rows: int = 6) -> tuple[Emulator, Region]:
    emulator = Emulator(columns, rows)
    return emulator, Region(create_console(emulator, columns, rows))


def test_a_new_drawing_takes_the_place_of_the_one_before():
    emulator, drawn = region()
    drawn.draw(lines("one", "two", "three"))
    drawn.draw(lines("one", "2"))
    assert emulator.screen() == "one\n2"
    drawn.draw([])
    assert emulator.screen() == ""


def test_what_stays_the_same_is_not_written_again():
    emulator, drawn = region()
    drawn.draw(lines("above", "grow"))
    emulator.written = ""
    drawn.draw(lines("above", "growing", "below"))
    assert "above" not in emulator.written
    emulator.written = ""
    drawn.draw(lines("above", "growing", "below"))
    assert emulator.written == ""


def test_the_next_drawing_after_the_end_comes_below():
    emulator, drawn = region()
    drawn.draw(lines("one"))
    drawn.finish()
    drawn.draw(lines("two"))
    drawn.draw(lines("three"))
    assert emulator.screen() == "one\nthree"


def test_what_grows_longer_than_the_screen_can_be_scrolled_back_to():
    emulator, drawn = region(rows=6)
    texts = [f"line {number}" for number in range(40)]
    for number in range(len(texts) + 1):
        drawn.draw(lines(*texts[:number]))
    drawn.finish()
    assert emulator.text() == "\n".join(texts)


def test_lines_that_fold_are_counted_in_rows():
    emulator, drawn = region(columns=10, rows=6)
    drawn.draw(lines("a" * 25, "b"))
    drawn.draw(lines("c", "d"))
    assert emulator.screen() == "c\nd"


@pytest.mark.parametrize("seed", range(20))
def test_the_end_is_whole_whatever_changed_above_the_screen(seed: int):
    chance = random.Random(seed)
    emulator, drawn = region(rows=5)
    shown: list[str] = []
    for _ in range(60):
        if shown and chance.random() < 0.3:
            shown[chance.randrange(len(shown))] = f"new {chance.random():.6f}"
        if shown and chance.random() < 0.1:
            shown.pop(chance.randrange(len(shown)))
        shown.append(f"{chance.random():.6f}")
        drawn.draw(lines(*shown))
    drawn.finish()
    assert set(shown) <= set(emulator.text().split("\n"))
    assert emulator.text().endswith("\n".join(shown[-5:]))


def test_blank_space_around_is_left_out():
    emulator = Emulator()
    laid_out = lay_out(create_console(emulator), Text("\n  \n  in   \n\nout\n \n"))
    assert [line.text for line in laid_out] == ["  in", "", "out"]
    assert [line.cells for line in laid_out] == [4, 0, 3]


def test_wide_characters_count_twice():
    assert [line.cells for line in lay_out(create_console(Emulator()), Text("日本🎉"))] == [6]


def test_a_terminal_that_cannot_move_its_cursor_shows_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    emulator, drawn = region()
    drawn.draw(lines("one"))
    drawn.draw(lines("one", "two"))
    drawn.finish()
    assert emulator.written.strip() == "one\ntwo"
