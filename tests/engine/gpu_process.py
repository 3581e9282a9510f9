"""What `spaces.GPU` does with a generator function on ZeroGPU, without a GPU: a stand-in for tests in this process."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from gradio.context import LocalContext
from gradio.exceptions import Error

Function: TypeAlias = Callable[..., Any]
FORK = multiprocessing.get_context("fork")


@dataclass
class GPU:
    """A decorator as `spaces.GPU`: a call forks; arguments, yields and errors are pickled; a close stops the fork."""

    refusal: Exception | None = None
    """Raised in place of giving a GPU."""
    tasks: list[Function] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    """What each call found to be Gradio's request."""
    processes: list[Any] = field(default_factory=list)

    def __call__(self, task: Function, duration: Function) -> Function:
        assert inspect.isgeneratorfunction(task)
        self.tasks.append(task)
        return partial(self._call, task, duration)

    def _call(self, task: Function, duration: Function, *args: object) -> Generator[Any, None, None]:
        self.seconds.append(duration(*args))
        self.requests.append(LocalContext.request.get(None))
        if self.refusal:
            raise self.refusal
        results, stop = FORK.SimpleQueue(), FORK.Event()
        process = FORK.Process(target=_run, args=(task, pickle.dumps(args), results, stop), daemon=True)
        self.processes.append(process)
        process.start()
        try:
            yield from _receive(results, process)
        except GeneratorExit:
            stop.set()
            raise
        finally:
            process.join()


def _receive(results: Any, process: Any) -> Iterator[Any]:
    while True:
        while results.empty():
            if not process.is_alive() and results.empty():
                raise Error("GPU task aborted", title="ZeroGPU worker error", print_exception=False)
            process.join(0.005)
        kind, value = results.get()
        if kind == "end":
            return
        if kind == "error":
            raise value if isinstance(value, Error) else Error(type(value).__name__, title="ZeroGPU worker error")
        yield value


def _run(task: Function, args: bytes, results: Any, stop: Any) -> None:
    torch.set_num_threads(1)  # a fork has none of its parent's threads
    generator = task(*pickle.loads(args))
    try:
        for value in generator:
            if stop.is_set():
                generator.close()
                break
            results.put(("value", value))
    except Exception as error:
        results.put(("error", error))
    results.put(("end", None))
