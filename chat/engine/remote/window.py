"""What of a prompt fits into a server's window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from chat.engine.remote.errors import WindowExceeded
from chat.engine.thought_formats import TAGGED
from chat.engine.turns import split_turns
from chat.types import Message, Prompt, PromptTooLong

Count: TypeAlias = Callable[[Prompt], Awaitable[int | None]]
"""Counts a prompt's tokens; None if nobody can."""

_SHORTEST_REPLY = 16
_MARKS = 32
"""More tokens than any template writes around one message."""


@dataclass(frozen=True, slots=True)
class Extract:
    """What is sent of a prompt, and how long its reply may be."""

    prompt: Prompt
    max_new_tokens: int
    turns_left_out: int = 0
    messages_left_out: int = 0
    is_shortened: bool = False

    def without(self, turns: int) -> Extract:
        """Leave out the oldest `turns`, but never the system text or the newest turn."""
        system, all_turns = _split(self.prompt)
        dropped, kept = all_turns[:turns], all_turns[turns:]
        return replace(
            self,
            prompt=[*system, *chain.from_iterable(kept)],
            turns_left_out=self.turns_left_out + len(dropped),
            messages_left_out=self.messages_left_out + sum(map(len, dropped)),
        )

    @property
    def old_turns(self) -> int:
        """How many turns could still be left out."""
        return max(0, len(_split(self.prompt)[1]) - 1)


async def fit(prompt: Prompt, max_new_tokens: int, window: int, count: Count) -> Extract:
    """Shorten the reply down to a quarter of the window, then leave out the oldest turns, until all fits.

    Nothing is shortened where window (0) or number of tokens are not known. Raises: PromptTooLong.
    """
    whole = Extract(prompt, max_new_tokens)
    if _most_tokens(prompt) + max_new_tokens <= window or not window or (tokens := await count(prompt)) is None:
        return whole
    room = window - min(max_new_tokens, window // 4)
    least, most = 0, whole.old_turns if tokens > room else 0
    while least < most:
        middle = (least + most) // 2
        if (await count(whole.without(middle).prompt) or 0) <= room:
            most = middle
        else:
            least = middle + 1
    fitting = whole.without(least) if least else whole
    tokens = await count(fitting.prompt) or 0
    if tokens + min(max_new_tokens, _SHORTEST_REPLY) > window:
        raise PromptTooLong(tokens, window)
    return replace(fitting, max_new_tokens=min(max_new_tokens, window - tokens))


def shrink(refused: Extract, error: WindowExceeded) -> Extract:
    """Return the next smaller thing to try: a quarter of the reply once, then 1, 3, 7, 15, ... turns left out.

    Raises: `error` if nothing is left to leave out.
    """
    if error.counts_reply and not refused.is_shortened and refused.max_new_tokens > _SHORTEST_REPLY:
        shorter = max(_SHORTEST_REPLY, refused.max_new_tokens // 4)
        return replace(refused, max_new_tokens=shorter, is_shortened=True)
    if refused.old_turns:
        return refused.without(min(refused.turns_left_out + 1, refused.old_turns))
    raise error


def _split(prompt: Prompt) -> tuple[list[Message], list[list[Message]]]:
    """Return the system messages and the turns; a plain text has neither."""
    return ([], []) if isinstance(prompt, str) else split_turns(prompt, TAGGED)


def _most_tokens(prompt: Prompt) -> int:
    """Return a number of tokens that no tokenizer exceeds: at worst each byte is one."""
    if isinstance(prompt, str):
        return len(prompt.encode("utf-8", "surrogatepass")) + _MARKS
    return sum(len(m["content"].encode("utf-8", "surrogatepass")) + _MARKS for m in prompt) + _MARKS
