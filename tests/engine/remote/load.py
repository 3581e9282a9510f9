"""Measure many visitors streaming at once: `python -m tests.engine.remote.load [VISITORS [PIECES]]`.

Each gets 30 pieces a second from a scripted server in a process of its own. A quarter stops in mid-reply.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import httpx2
import psutil

from chat.engine.remote import RemoteEngine, Server
from chat.settings import EngineSettings
from chat.types import GenerationParams
from tests.engine.remote.conftest import ask

RATE = 30


@dataclass
class Visitor:
    """One reader in a thread of its own, as each is in the web page."""

    engine: RemoteEngine
    stop: threading.Event = field(default_factory=threading.Event)
    gaps: list[float] = field(default_factory=list)
    pieces: int = 0
    stop_s: float = 0.0
    error: str = ""

    def visit(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.error = repr(error)

    def _read(self) -> None:
        stream = self.engine.stream(ask(), GenerationParams())
        last = None
        for chunk in stream:
            now = time.perf_counter()
            if chunk.text:
                self.pieces += chunk.text.count("word")
                self.gaps += [now - last] if last else []
                last = now
            if self.stop.is_set():
                stream.close()
                self.stop_s = time.perf_counter() - now


def main(visitors: int = 200, pieces: int = 600) -> None:
    command = [sys.executable, "-m", "tests.upstream", "0", str(RATE), str(pieces)]
    upstream = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert upstream.stdout is not None
    root = f"http://127.0.0.1:{upstream.stdout.readline().strip()}"
    engine = RemoteEngine(Server(f"{root}/v1"), EngineSettings())
    try:
        measure(engine, [Visitor(engine) for _ in range(visitors)], root, pieces / RATE)
    finally:
        engine.close()
        upstream.kill()
        upstream.wait()


def measure(engine: RemoteEngine, visitors: list[Visitor], root: str, seconds: float) -> None:
    process = psutil.Process()
    list(engine.stream(ask(), GenerationParams(max_new_tokens=1, stop=("word0",))))
    cpu_before = sum(process.cpu_times()[:2])
    before, threads_before = process.memory_info().rss, threading.active_count()
    threads = [threading.Thread(target=visitor.visit) for visitor in visitors]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds / 2)
    during = process.memory_info().rss
    leaving = visitors[::4]
    already = count_left(root)
    stopped = time.perf_counter()
    for visitor in leaving:
        visitor.stop.set()
    while count_left(root) < already + len(leaving):
        time.sleep(0.01)
    noticed = time.perf_counter() - stopped
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - started
    cpu_s = sum(process.cpu_times()[:2]) - cpu_before
    gaps = sorted(gap for visitor in visitors for gap in visitor.gaps)
    done = sum(visitor.pieces for visitor in visitors)
    lines = {
        "visitors": len(visitors),
        "errors": [visitor.error for visitor in visitors if visitor.error] or "none",
        "pieces": f"{done:,} in {wall:.1f} s, {done / wall:,.0f}/s",
        "gap between pieces": f"median {statistics.median(gaps):.3f} s, 99% {gaps[int(len(gaps) * 0.99)]:.3f} s, "
        f"worst {gaps[-1]:.3f} s",
        "stop": f"close() at most {max(v.stop_s for v in leaving):.4f} s; the server saw all "
        f"{len(leaving)} leave after {noticed:.2f} s",
        "memory a visitor": f"{(during - before) / len(visitors) / 1024:.0f} KiB, its reading thread included",
        "threads beside the visitors'": threads_before - 1,
        "CPU": f"{cpu_s / wall:.0%} of one core, {cpu_s / done * 1e6:.0f} µs a piece",
    }
    for name, value in lines.items():
        sys.stdout.write(f"{name}: {value}\n")


def count_left(root: str) -> int:
    return int(httpx2.get(f"{root}/left").text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
