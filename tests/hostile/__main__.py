"""The hostile hour: `python -m tests.hostile --minutes 60`. Everything stays on the loopback, and ends by itself.

Visitors with bad manners use the real app, whose server is killed now and then. When all have left, nothing of them
may be left. Exits with 1 if something is, or if the app has ever done what it must not do.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from tests.hostile.app_process import run_app, run_faucet
from tests.hostile.faucet import MODEL
from tests.hostile.hour import RATE, Hour
from tests.hostile.visitor import KEY, LOGIN


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--browsers", type=int, default=2, help="how many of them have a real Chromium")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args(arguments)
    keys = {"CHAT_API_KEY": KEY, "CHAT_AUTH": ":".join(LOGIN), "CHAT_QUEUE_SIZE": str(2 * chosen.visitors)}
    with (
        run_faucet(RATE) as faucet,
        run_app("--engine", f"{faucet.url}/v1", "--model", MODEL, environment=keys) as app,
    ):
        hour = Hour(app, faucet, chosen.visitors, chosen.browsers, chosen.seed)
        is_good = asyncio.run(hour.run(60 * chosen.minutes))
        sys.stdout.write(hour.report())
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
