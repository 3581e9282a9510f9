from __future__ import annotations

import asyncio
import random

import pytest

from chat.engine.remote.errors import WindowExceeded
from chat.engine.remote.window import Extract, fit, shrink
from chat.types import Message, Prompt, PromptTooLong


async def count(prompt: Prompt) -> int:
    """Count characters, and 3 for each message."""
    return len(prompt) if isinstance(prompt, str) else sum(len(m["content"]) + 3 for m in prompt)


async def count_nothing(prompt: Prompt) -> None:
    return None


def talk(*lengths: int, system: int = 0) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "s" * system}] if system else []
    for length in lengths:
        messages += [{"role": "user", "content": "u" * length}, {"role": "assistant", "content": "a" * length}]
    return messages[:-1]


def test_what_is_left_is_the_longest_end_that_fits() -> None:
    """C1, C2, C3"""
    chance = random.Random(0)
    for _ in range(300):
        prompt = talk(*(chance.randrange(1, 60) for _ in range(chance.randrange(1, 30))), system=chance.randrange(9))
        window, reply = chance.randrange(150, 900), chance.randrange(1, 400)
        extract = asyncio.run(fit(prompt, reply, window, count))
        tokens = asyncio.run(count(extract.prompt))
        assert tokens + extract.max_new_tokens <= window
        kept = [m["content"] for m in extract.prompt]
        assert kept[-1] == prompt[-1]["content"]
        assert kept[0] == prompt[0]["content"] or prompt[0]["role"] != "system"
        assert len(extract.prompt) + extract.messages_left_out == len(prompt)
        if extract.messages_left_out:
            room = window - min(reply, window // 4)
            longer = Extract(prompt, reply).without(extract.turns_left_out - 1)
            assert tokens <= room or not extract.old_turns
            assert asyncio.run(count(longer.prompt)) > room


def test_nothing_is_cut_where_nobody_counts_or_the_window_is_unknown() -> None:
    prompt = talk(1000, 1000)
    for window, counter in ((500, count_nothing), (0, count)):
        assert asyncio.run(fit(prompt, 100, window, counter)) == Extract(prompt, 100)


def test_a_short_prompt_is_not_counted() -> None:
    async def fail(prompt: Prompt) -> int:
        raise AssertionError

    assert asyncio.run(fit(talk(10, 10), 100, 1000, fail)) == Extract(talk(10, 10), 100)


def test_a_plain_text_shortens_its_reply_or_is_too_long() -> None:
    assert asyncio.run(fit("x" * 400, 200, 500, count)).max_new_tokens == 100
    with pytest.raises(PromptTooLong):
        asyncio.run(fit("x" * 490, 200, 500, count))


def test_trying_smaller_ends_at_the_newest_turn() -> None:
    error = WindowExceeded("maximum context length, completion")
    extract, tried = Extract(talk(*[5] * 12, system=4), 1000), []
    for _ in range(5):
        extract = shrink(extract, error)
        tried.append((extract.max_new_tokens, extract.turns_left_out))
    with pytest.raises(WindowExceeded):
        shrink(extract, error)
    assert tried == [(250, 0), (250, 1), (250, 3), (250, 7), (250, 11)]
    assert [m["role"] for m in extract.prompt] == ["system", "user"]


def test_a_reply_is_not_shortened_for_a_server_that_counts_the_prompt_alone() -> None:
    extract = shrink(Extract(talk(5, 5), 1000), WindowExceeded("exceeds the available context size"))
    assert (extract.max_new_tokens, extract.turns_left_out) == (1000, 1)
