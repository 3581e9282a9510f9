"""How the hour goes: a warm-up, a look, the visits, another look."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import httpx

from tests.hostile import api_visits, page_visits, rude_visits
from tests.hostile.app_process import AppProcess, FaucetProcess
from tests.hostile.browser_visits import browses, start_browser
from tests.hostile.visitor import Outages, Visitor

RATE = 30  # words a second
PATIENCE_S = 240
IDLE_S = 12  # a pool's thread that has had nothing to do for ten seconds may go
MOST_MEMORY = 1.1
LONG_S = 600.0
SHELF = 2000  # of so many pages Gradio keeps what they were told last

VISITS: Mapping[Callable[[Visitor], Awaitable[None]], int] = {
    api_visits.reads_a_reply: 6,
    api_visits.takes_a_whole_reply: 2,
    api_visits.leaves_in_mid_reply: 4,
    api_visits.leaves_before_the_first_word: 2,
    api_visits.sends_too_much: 1,
    api_visits.has_a_wrong_key: 2,
    api_visits.has_a_wrong_password: 1,
    api_visits.sends_nonsense: 2,
    api_visits.asks_too_often: 1,
    page_visits.talks: 6,
    page_visits.stops: 4,
    page_visits.reloads_in_mid_reply: 4,
    page_visits.sends_twice: 2,
    page_visits.asks_and_never_listens: 2,
    page_visits.uses_the_endpoint_and_never_listens: 1,
    page_visits.listens_slowly: 2,
    page_visits.is_not_logged_in: 2,
    rude_visits.reads_slowly: 3,
    rude_visits.sends_half_a_request: 3,
    rude_visits.leaves_at_once: 3,
    rude_visits.speaks_no_http: 1,
}
"""How often each is chosen."""


class Hour:
    """Lets visitors loose on an app, and judges what they leave behind."""

    def __init__(self, app: AppProcess, faucet: FaucetProcess, visitors: int, browsers: int, seed: int) -> None:
        self._app, self._faucet, self._browsers, self._seed = app, faucet, browsers, seed
        self._outages, self.outcomes = Outages(), Counter[str]()
        self._minds = random.Random(seed)
        self._visitors = [self._invite(number) for number in range(visitors)]
        self._before: Mapping[str, float] = {}
        self._after: Mapping[str, float] = {}
        self._seconds = 0.0
        self._faults: list[str] = []

    async def run(self, seconds: float) -> bool:
        """Return whether all went as it must."""
        sys.stdout.write(f"seed {self._seed}\n")
        sys.stdout.flush()
        await asyncio.to_thread(self._app.wait_until_ready)
        await self._warm_up(seconds)
        self._before = await self._settle()
        self.outcomes.clear()
        began = time.monotonic()
        await self._let_loose(seconds)
        self._seconds = time.monotonic() - began
        self._after = await self._settle()
        self._faults += self._judge()
        return not self._faults

    def report(self) -> str:
        """Return the table."""
        lines = [f"{len(self._visitors)} visitors in {self._seconds / 60:.1f} minutes, seed {self._seed}"]
        lines += [f"the server behind was killed and started again {self._outages.count} times"]
        lines += ["", *(f"{count:>8,}  {outcome}" for outcome, count in sorted(self.outcomes.items())), ""]
        lines += [f"{'':16}{'before':>10}{'after':>10}"]
        lines += [f"{name:16}{self._before[name]:>10,.0f}{self._after[name]:>10,.0f}" for name in self._after]
        lines += ["", *self._faults, f"verdict: {'FAILED' if self._faults else 'good'}", ""]
        return "\n".join(lines)

    def _invite(self, number: int) -> Visitor:
        mind = random.Random(self._minds.random())
        return Visitor(self._app.url, f"198.51.100.{number + 1}", mind, self._outages, self.outcomes)

    async def _warm_up(self, seconds: float) -> None:
        """Let the app's memory grow to what it needs anyway, Gradio's shelves of the pages it has served included."""
        for visitor in self._visitors:  # not all at once: the app cannot know that no password will be wrong
            await page_visits.looks_in(visitor)
        if seconds >= LONG_S:
            for _ in range(0, SHELF, len(self._visitors)):
                await asyncio.gather(*(page_visits.looks_in(visitor) for visitor in self._visitors))
        await self._let_loose(min(LONG_S, max(5.0, seconds / 6)))

    async def _let_loose(self, seconds: float) -> None:
        """Return when everybody has left."""
        until = time.monotonic() + seconds
        async with start_browser() as browser:
            visits = [
                self._live(visitor, until, browser if number < self._browsers else None)
                for number, visitor in enumerate(self._visitors)
            ]
            breaking = asyncio.create_task(self._break_server())
            await asyncio.gather(*visits)
            breaking.cancel()
            await asyncio.wait([breaking])

    async def _live(self, visitor: Visitor, until: float, browser: object) -> None:
        await asyncio.sleep(visitor.mind.uniform(0, 3))
        while time.monotonic() < until:
            visit, *_ = visitor.mind.choices(list(VISITS), list(VISITS.values()))
            doing = browses(visitor, browser) if browser else visit(visitor)
            try:
                await asyncio.wait_for(doing, PATIENCE_S)
            except Exception as error:
                self._faults.append(f"{doing.__name__}: {error!r}")
            await asyncio.sleep(visitor.mind.expovariate(1))

    async def _break_server(self) -> None:
        """Kill the server behind the app now and then, and start it again."""
        while True:
            await asyncio.sleep(self._minds.uniform(8, 40))
            self._outages.begin()
            self._faucet.kill()
            try:
                await asyncio.sleep(self._minds.uniform(0.2, 4))
            finally:
                self._faucet.start()
                self._outages.end()

    async def _settle(self) -> Mapping[str, float]:
        """Wait until nothing changes any more, at most a minute; return what is left then."""
        last: Mapping[str, float] = {}
        pause = IDLE_S
        for _ in range(12):
            await asyncio.sleep(pause)
            await api_visits.takes_a_whole_reply(self._visitors[0])
            count = await asyncio.to_thread(self._app.census)
            if {**count, "MiB": 0} == {**last, "MiB": 0}:
                break
            last, pause = count, 4
        return count

    def _judge(self) -> list[str]:
        """Say what is wrong."""
        # In its first minutes any process still grows, so memory says something after a long run only.
        most = {name: count for name, count in self._before.items() if name != "MiB" or self._seconds >= LONG_S}
        if "MiB" in most:
            most["MiB"] *= MOST_MEMORY
        faults = [
            f"{name}: {self._before[name]:,.0f} before, {self._after[name]:,.0f} after"
            for name, count in most.items()
            if self._after[name] > count
        ]
        faults += [f"log: {line.rstrip()}" for line in self._app.log if "Traceback" in line or "Error" in line]
        if httpx.get(self._app.url, headers=self._visitors[0].headers).status_code not in (200, 401):
            faults.append("the page does not answer")
        return faults
