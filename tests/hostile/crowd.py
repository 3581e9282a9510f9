"""Many visitors who stream at once: `python -m tests.hostile.crowd --visitors 200 --copies 1`.

Each gets 30 pieces a second over the HTTP API, or with `--pages` on the page, and a quarter leaves in the middle. With
several copies, nginx stands before them. Says what the visitors saw, and which process spent how much CPU for it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil

from tests.hostile.app_process import AppProcess, FaucetProcess, run_app, run_faucet
from tests.hostile.faucet import MODEL
from tests.hostile.page_visits import read_functions
from tests.hostile.readers import ApiReader, PageReader, Reader
from tests.hostile.visitor import KEY
from tests.nginx import read_blocks, serve_blocks

RATE = 30
ARRIVALS = 40  # a second


class Crowd:
    """Streams to many at once, and measures."""

    def __init__(self, readers: Sequence[Reader], apps: list[AppProcess], faucet: FaucetProcess) -> None:
        self._readers = readers
        self._leave = asyncio.Event()
        for reader in self._readers[::4]:
            reader.leaves = self._leave
        self._faucet = faucet
        self._processes = {
            **{f"copy {number} of the app": psutil.Process(app.process.pid) for number, app in enumerate(apps, 1)},
            "the server behind": psutil.Process(faucet.process.pid),
            "the visitors": psutil.Process(),
            **{child.name(): child for child in psutil.Process().children() if child.name() == "nginx"},
        }
        self._errors: list[str] = []

    async def run(self, seconds: float) -> str:
        """Return what was seen."""
        leaving, before = len(self._readers[::4]), self._memory()
        arriving_s = len(self._readers) / ARRIVALS + 2
        visits = [
            asyncio.create_task(self._visit(number, reader, arriving_s + seconds))
            for number, reader in enumerate(self._readers)
        ]
        await asyncio.sleep(arriving_s)
        cpu, pieces, started = self._cpu(), self._count(), time.perf_counter()
        await asyncio.sleep(seconds / 2)
        wall, during = time.perf_counter() - started, self._memory()
        cpu_s = {name: spent - cpu[name] for name, spent in self._cpu().items()}
        done = self._count() - pieces
        noticed = await self._see_them_leave(leaving)
        await asyncio.gather(*visits)
        self._errors += ["a reply was cut" for reader in self._readers if not (reader.leaves or reader.is_whole)]
        gaps = sorted(gap for reader in self._readers for gap in reader.gaps)
        lines = {
            "errors": ", ".join(sorted(set(self._errors))) or "none",
            "pieces": f"{done / wall:,.0f} a second, of {len(self._readers) * RATE:,} that were sent",
            "first piece": f"worst after {max(reader.first_s for reader in self._readers):.2f} s",
            "gap between pieces": f"median {statistics.median(gaps):.3f} s, 99 of 100 within "
            f"{gaps[len(gaps) * 99 // 100]:.3f} s, worst {gaps[-1]:.2f} s",
            "leaving": f"the server behind had seen all {leaving} leave after {noticed:.2f} s",
            "memory a visitor": f"{(during - before) / len(self._readers) / 1024:,.0f} KiB",
            "CPU a piece": f"{sum(s for n, s in cpu_s.items() if 'copy' in n) / done * 1e6:,.0f} µs in the app",
            **{f"CPU of {name}": f"{spent / wall:.0%} of a core" for name, spent in cpu_s.items()},
        }
        return "\n".join(f"{name}: {value}" for name, value in lines.items())

    async def _visit(self, number: int, reader: Reader, seconds: float) -> None:
        await asyncio.sleep(number / ARRIVALS)
        try:
            await reader.visit(round(seconds * RATE), 10 * seconds)
        except Exception as error:
            self._errors.append(repr(error))

    async def _see_them_leave(self, leaving: int) -> float:
        already, began = self._left(), time.perf_counter()
        self._leave.set()
        while self._left() < already + leaving and time.perf_counter() < began + 60:
            await asyncio.sleep(0.02)
        return time.perf_counter() - began

    def _left(self) -> int:
        return httpx.get(f"{self._faucet.url}/left").json()

    def _count(self) -> int:
        return sum(reader.pieces for reader in self._readers)

    def _cpu(self) -> Mapping[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}

    def _memory(self) -> int:
        return sum(process.memory_info().rss for name, process in self._processes.items() if "copy" in name)


@contextmanager
def serve(copies: int, visitors: int, faucet: FaucetProcess) -> Iterator[tuple[list[AppProcess], httpx.URL]]:
    """Run the copies, and the README's nginx before them if there are several; yield them, and whom to visit."""
    settings = {"CHAT_API_KEY": KEY, "CHAT_QUEUE_SIZE": str(visitors), "CHAT_MESSAGES_PER_MINUTE": "100000"}
    flags = ["--engine", f"{faucet.url}/v1", "--model", MODEL, *["--root-path", "/chat"] * (copies > 1)]
    with ExitStack() as stack:
        apps = [stack.enter_context(run_app(*flags, environment=settings)) for _ in range(copies)]
        for app in apps:
            app.wait_until_ready()
        if copies == 1:
            yield apps, httpx.URL(apps[0].url)
            return
        server, upstream = read_blocks()
        # Without TLS, which would cost the visitors as much as the server.
        places = {" ssl http2;": ";", "http://127.0.0.1:7860/;": "http://chat/;", "    server 127.0.0.1:7860;": ""}
        places["    server 127.0.0.1:7861;"] = "".join(f"server {httpx.URL(app.url).netloc.decode()};" for app in apps)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        yield apps, httpx.URL(stack.enter_context(serve_blocks(folder, [upstream, server], places)))


def create_readers(app: AppProcess, url: httpx.URL, count: int, on_pages: bool) -> list[Reader]:
    if on_pages:
        PageReader.functions = read_functions(httpx.get(f"{app.url}/config").json())
    kind = PageReader if on_pages else ApiReader
    return [kind(url, f"127.0.1.{number % 250 + 1}") for number in range(count)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.hostile.crowd", description=__doc__)
    parser.add_argument("--visitors", type=int, default=200)
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20)
    chosen = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with run_faucet(RATE) as faucet, serve(chosen.copies, chosen.visitors, faucet) as (apps, url):
        readers = create_readers(apps[0], url, chosen.visitors, chosen.pages)
        crowd = Crowd(readers, apps, faucet)
        sys.stdout.write(f"{chosen.visitors} visitors, copies of the app: {chosen.copies}\n")
        sys.stdout.write(f"{asyncio.run(crowd.run(chosen.seconds))}\n")


if __name__ == "__main__":
    main()
