"""What is measured: each measure asks one target and returns figures by the names they have in the table."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from chat.bench.memory import PeakMemory
from chat.bench.settings import BenchSettings
from chat.bench.talks import Ask, Asker, Messages
from chat.types import Message

Figures: TypeAlias = dict[str, float]

DECODE, READ, MEMORY = "decode, tokens/s", "prompt, tokens/s", "peak memory, MB"

_QUESTIONS = (
    "Tell me a long story about a fox.",
    "Write about the sea in detail.",
    "Explain gravity at length.",
    "Describe Paris at length.",
    "Give me a recipe for soup.",
    "Explain photosynthesis in detail.",
    "What is a computer? Explain in detail.",
    "Write a poem about rain.",
)
_LONG = "please tell me about cats and dogs and the sea. "
_SOAK_CONVERSATIONS, _SOAK_TOKENS = 20, 16
_numbers = itertools.count(1)


def first_token(turn: int) -> str:
    """Name the row of the time to the first token at a turn."""
    return f"first token at turn {turn}, s"


def users(count: int, what: str) -> str:
    """Name a row of what so many users see: `tokens/s`, `median first token, s`, `worst ...`, `worst gap, s`."""
    return f"{count} user{'s' if count > 1 else ''}: {what}"


@dataclass
class Target:
    """Something that answers. `process` is the id of the process it runs in, None if it is not on this machine."""

    name: str
    ask: Ask
    process: int | None
    answers_many: bool = True
    failed: bool = False


@dataclass(frozen=True)
class Measure:
    """One measure, with a name for the progress bar."""

    name: str
    run: Callable[[Asker, Ask], Figures]
    for_many: bool = False


def list_measures(settings: BenchSettings) -> Iterator[Measure]:
    """Yield the measures in the order of the table. The first only warms up."""
    yield Measure("warming up", _warm_up)
    yield Measure("decode", lambda asker, ask: _decode(asker, ask, settings.tokens))
    yield Measure("prompt", _read)
    yield Measure(f"{settings.turns} turns", lambda asker, ask: _turns(asker, ask, settings))
    for count in settings.user_counts:
        yield Measure(users(count, "together"), _users(count, settings.tokens), for_many=count > 1)
    if settings.soak:
        yield Measure(
            f"soak, {settings.soak} turns", lambda asker, ask: _soak(asker, ask, settings.soak), for_many=True
        )


def measure(asker: Asker, target: Target, what: Measure) -> Figures:
    """Return the figures of one measure, with the peak memory meanwhile. Raises: ChatError, Interrupted."""
    if target.process is None:
        return what.run(asker, target.ask)
    with PeakMemory(target.process) as memory:
        figures = what.run(asker, target.ask)
    return figures | {MEMORY: memory.peak / 2**20}


def _ask(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def _new() -> str:
    """Return a beginning that no prompt had before, so that nothing read earlier can be used."""
    return f"Number {next(_numbers)}. "


def _warm_up(asker: Asker, ask: Ask) -> Figures:
    asker.together(ask, [_ask("Hello")], 4)
    return {}


def _decode(asker: Asker, ask: Ask, tokens: int) -> Figures:
    (talk,) = asker.together(ask, [_ask(_new() + _QUESTIONS[0])], tokens)
    # A short reply may come in one piece, which has no speed.
    return {DECODE: talk.tokens_per_s} if len(talk.arrivals) > 1 else {}


def _read(asker: Asker, ask: Ask) -> Figures:
    (talk,) = asker.together(ask, [_ask(_new() + _LONG * 120)], 2)
    # Servers that count no tokens have no such figure.
    return {READ: talk.usage.prompt_tokens / talk.first_s} if talk.usage.prompt_tokens else {}


def _turns(asker: Asker, ask: Ask, settings: BenchSettings) -> Figures:
    figures: Figures = {}
    messages: Messages = []
    for turn in range(1, settings.turns + 1):
        messages = [*messages, *_ask((_new() if turn == 1 else "") + f"Question {turn}: " + _LONG * 12)]
        (talk,) = asker.together(ask, [messages], settings.tokens)
        figures[first_token(turn)] = talk.first_s
        messages = [*messages, {"role": "assistant", "content": talk.text}]
    return figures


def _users(count: int, tokens: int) -> Callable[[Asker, Ask], Figures]:
    def run(asker: Asker, ask: Ask) -> Figures:
        prompts = [_ask(_new() + _QUESTIONS[i % len(_QUESTIONS)]) for i in range(count)]
        talks = asker.together(ask, prompts, tokens)
        seconds = max(talk.arrivals[-1] for talk in talks) - min(talk.started for talk in talks)
        firsts = [talk.first_s for talk in talks]
        return {
            users(count, "tokens/s"): sum(talk.usage.completion_tokens for talk in talks) / seconds,
            users(count, "median first token, s"): statistics.median(firsts),
            users(count, "worst first token, s"): max(firsts),
            users(count, "worst gap, s"): max(talk.worst_gap_s for talk in talks),
        }

    return run


def _soak(asker: Asker, ask: Ask, turns: int) -> Figures:
    """Go round many conversations that all grow. What it shows is the peak memory."""
    conversations: list[Messages] = [_ask(_new() + _LONG * 4) for _ in range(_SOAK_CONVERSATIONS)]
    for turn in range(turns):
        i = turn % len(conversations)
        (talk,) = asker.together(ask, [conversations[i]], _SOAK_TOKENS)
        conversations[i] = [*conversations[i], {"role": "assistant", "content": talk.text}, *_ask("Go on. " + _LONG)]
    return {}
