"""One run: every measure on every target, in turn, so that a machine that gets slower slows all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chat.bench.measures import Measure, Target, list_measures, measure
from chat.bench.report import Report
from chat.bench.server import serve
from chat.bench.settings import BenchSettings
from chat.bench.talks import Asker
from chat.engine.batched import BatchedEngine
from chat.engine.batching_trial import CannotBatch
from chat.engine.direct import DirectEngine
from chat.engine.loading import load_model
from chat.engine.memory import release_memory
from chat.engine.remote import RemoteEngine, find_server
from chat.settings import EngineSettings
from chat.types import ChatError, InvalidRequest


def run(settings: BenchSettings) -> None:
    """Measure, then print the table and write the files that the settings name; also after Ctrl-C."""
    transformers.logging.set_verbosity_error()
    console, report = Console(), Report()
    try:
        with _progress_bar(console) as progress:
            Bench(settings, report, progress).run()
    except KeyboardInterrupt:
        report.notes.append("Ended early, by Ctrl-C.")
    console.print(report.table())
    if settings.json_file:
        report.write_json(settings.json_file)
    if settings.plot:
        from chat.bench.plot import draw

        draw(report, settings.turns, settings.user_counts, settings.plot)


def _progress_bar(console: Console) -> Progress:
    text = TextColumn("{task.description}", table_column=None)
    return Progress(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text, console=console, transient=True)


class Bench:
    """Measures first within this process, then through servers, so that the model is loaded once at a time."""

    def __init__(self, settings: BenchSettings, report: Report, progress: Progress) -> None:
        self._settings, self._report, self._progress = settings, report, progress
        self._asker = Asker()
        self._measures = list(list_measures(settings))
        self._task = progress.add_task("Loading the model", total=None)

    def run(self) -> None:
        """Fill the report. Raises: ChatError, KeyboardInterrupt."""
        if self._settings.engine in ("auto", "direct", "batched"):
            with self._local() as targets:
                self._measure(targets)
            release_memory()
        with self._servers() as targets:
            self._measure(targets)

    @contextmanager
    def _local(self) -> Iterator[list[Target]]:
        settings = self._settings
        loaded = load_model(settings, lambda done: self._progress.update(self._task, description=done.text))
        self._report.model = f"{loaded.info.name}, {loaded.info.dtype}, {loaded.info.device}"
        here = os.getpid()
        targets = [Target("generate", self._asker.bare(loaded), here, answers_many=False)]
        with ExitStack() as stack:
            for name, kind in {"direct": DirectEngine, "batched": BatchedEngine}.items():
                if settings.engine not in ("auto", name):
                    continue
                try:
                    engine = stack.enter_context(closing(kind(loaded, settings)))
                except CannotBatch as error:
                    self._report.notes.append(str(error))
                else:
                    targets.append(Target(name, self._asker.engine(engine), here))
            self._report.notes.append(f"{', '.join(target.name for target in targets)} share one process.")
            yield targets

    @contextmanager
    def _servers(self) -> Iterator[list[Target]]:
        settings = self._settings
        self._progress.update(self._task, description="Starting the server")
        with ExitStack() as stack:
            url, process = stack.enter_context(serve(settings))
            targets = [self._remote(stack, "server", process, engine=url, model="")]
            if settings.against:
                other = {
                    "engine": settings.against,
                    "engine_key": settings.against_key,
                    "model": settings.against_model,
                }
                targets.append(self._remote(stack, urlsplit(settings.against).netloc, None, **other))
            yield targets

    def _remote(self, stack: ExitStack, name: str, process: int | None, **where: Any) -> Target:
        # How the model is loaded is the server's own, whatever the environment says.
        settings = EngineSettings(**where, quantize=None, compile=False)
        engine = stack.enter_context(closing(RemoteEngine(find_server(settings), settings)))
        return Target(name, self._asker.engine(engine), process)

    def _measure(self, targets: Sequence[Target]) -> None:
        steps = [
            (what, target)
            for _ in range(self._settings.repeat)
            for what in self._measures
            for target in targets
            if target.answers_many or not what.for_many
        ]
        self._progress.reset(self._task, total=len(steps))
        for what, target in steps:
            self._progress.update(self._task, description=f"{target.name}: {what.name}")
            self._try(what, target)
            self._progress.advance(self._task)

    def _try(self, what: Measure, target: Target) -> None:
        """Take one measure. One that the target refuses is left out; a target that fails is left alone from then on."""
        if target.failed:
            return
        try:
            self._report.add(target.name, measure(self._asker, target, what))
        except ChatError as error:
            target.failed = not isinstance(error, InvalidRequest)
            self._report.notes.append(f"{target.name}, {what.name}: {error}")
