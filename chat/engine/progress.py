"""The libraries' progress bars, turned into reports; none of them reaches the terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm
from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging

from chat.engine.starting import Report
from chat.types import Progress


class SilentBar(tqdm):  # type: ignore[type-arg]  # generic only in its stub
    """A progress bar that draws nothing and tells `advanced` how far it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.unit = kwargs.get("unit", "it")
        super().__init__(*args, **{**kwargs, "disable": True})

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update()

    def update(self, n: float | None = 1) -> None:
        self.n += n or 0
        self.advanced()

    def advanced(self) -> None:
        """Take note of the new `n`."""


def bars_for(advanced: Callable[[SilentBar], None]) -> type[SilentBar]:
    """Return a class of bars that call `advanced` with themselves at each step."""

    class Bar(SilentBar):
        def advanced(self) -> None:
            advanced(self)

    return Bar


def byte_bars(report: Report, total: int, text: str) -> type[SilentBar]:
    """Return the bars for a hub download of `total` bytes.

    The hub client makes three: files done, bytes received and bytes written. The latter two count the
    same bytes, and either may stay behind or still, so the farther one is what is reported.
    """
    done = 0

    def advanced(bar: SilentBar) -> None:
        nonlocal done
        if bar.unit == "B":
            done = min(max(done, int(bar.n)), total)
            report(Progress("loading", done, total, text))

    return bars_for(advanced)


@contextmanager
def libraries_report(report: Report) -> Generator[None, None, None]:
    """Let transformers report the weights it loads, and keep it from writing to the terminal."""

    def advanced(bar: SilentBar) -> None:
        report(Progress("loading", int(bar.n), int(bar.total or 0), "Loading the weights"))

    bars = bars_for(advanced)
    hook = logging.set_tqdm_hook(lambda _factory, args, kwargs: bars(*args, **kwargs))
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        # The GGUF reader makes its bar past the hook, and its stage is the longest of all.
        with _swapped(modeling_gguf_pytorch_utils, "tqdm", bars):
            yield
    finally:
        logging.set_verbosity(verbosity)
        logging.set_tqdm_hook(hook)


@contextmanager
def _swapped(owner: object, name: str, value: object) -> Generator[None, None, None]:
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)
