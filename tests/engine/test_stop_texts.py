"""Stop texts are found across pieces and never shown."""

import pytest

from chat.engine.stop_texts import StopTexts, partial_match


def run(stops, pieces):
    filter_ = StopTexts(stops)
    shown = [filter_.feed(piece) for piece in pieces]
    return "".join(shown) + filter_.finish(), filter_.matched


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_stop_text_is_found_wherever_the_text_is_cut(cut):
    """S12"""
    text = "alpha beta gamma delta"
    assert run(["beta gamma"], [text[:cut], text[cut:]]) == ("alpha ", True)


def test_held_text_is_released_when_it_does_not_match():
    """S12"""
    assert run(["beta gamma"], ["alpha beta ", "gammx", " delta"]) == ("alpha beta gammx delta", False)


def test_what_cannot_begin_a_stop_text_is_not_held_back():
    filter_ = StopTexts(["###"])
    assert filter_.feed("a < b ") == "a < b "
    assert filter_.feed("#") == ""
    assert filter_.feed("1") == "#1"


def test_the_earliest_of_several_stops_wins():
    """S12"""
    assert run(["END", "STOP"], ["one STOP two END"]) == ("one ", True)
    assert run(["END", "STOP"], ["one END two STOP"]) == ("one ", True)


def test_nothing_follows_a_stop_text():
    filter_ = StopTexts(["."])
    assert [filter_.feed(piece) for piece in ["a.b", "c"]] + [filter_.finish()] == ["a", "", ""]


def test_a_text_that_begins_like_a_stop_is_let_out_at_the_end():
    assert run(["<end>"], ["so <en"]) == ("so <en", False)


def test_an_empty_stop_text_is_no_stop():
    assert run([""], ["text"]) == ("text", False)


@pytest.mark.parametrize(
    ("text", "length"), [("abc", 0), ("ab<", 1), ("ab<think", 6), ("ab<think>", 0), ("", 0), ("<<", 1)]
)
def test_partial_match_counts_the_end_that_begins_a_mark(text, length):
    assert partial_match(text, ["<think>"]) == length
