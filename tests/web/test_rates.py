from __future__ import annotations

from chat.web.rates import _MOST_KEYS, Rate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_some_come_at_once_then_one_by_one():
    clock = Clock()
    rate = Rate(3, 60, clock)
    assert [rate.take("a") for _ in range(3)] == [0, 0, 0]
    assert rate.take("a") == 20
    clock.now += 20
    assert rate.take("a") == 0
    assert rate.take("a") == 20


def test_who_was_refused_waits_no_longer_for_it():
    clock = Clock()
    rate = Rate(1, 10, clock)
    rate.take("a")
    assert {rate.take("a") for _ in range(50)} == {10}


def test_keys_do_not_share():
    rate = Rate(1, 10, Clock())
    assert [rate.take("a"), rate.take("b"), rate.take("a")] == [0, 0, 10]


def test_the_patient_wait_in_turn():
    rate = Rate(1, 10, Clock())
    assert [rate.take("a", patience=25) for _ in range(5)] == [0, 10, 20, 30, 30]


def test_what_is_given_back_can_be_taken_again():
    rate = Rate(1, 10, Clock())
    rate.take("a")
    rate.give_back("a")
    assert rate.take("a") == 0


def test_memory_is_bounded_whoever_comes():
    clock = Clock()
    rate = Rate(1, 10, clock)
    for number in range(_MOST_KEYS + 100):
        rate.take(str(number))
    assert len(rate._free_at) == _MOST_KEYS
    assert rate.take(str(_MOST_KEYS)) == 10, "the latest are known"
    clock.now += 11
    rate.take("new")
    assert len(rate._free_at) == 1
