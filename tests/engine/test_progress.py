"""The libraries' progress bars as reports."""

from __future__ import annotations

import pytest
from transformers.utils import logging

from chat.engine.progress import byte_bars, libraries_report
from chat.types import Progress


def test_bytes_received_and_bytes_written_are_not_counted_twice() -> None:
    seen: list[Progress] = []
    bars = byte_bars(seen.append, 100, "Downloading")
    received, written, files = bars(total=0, unit="B"), bars(total=0, unit="B"), bars(range(3), total=3)
    received.update(60)
    written.update(20)
    files.update()
    written.update(70)
    received.update(40)
    assert [progress.done for progress in seen] == [60, 60, 90, 100]
    assert {progress.total for progress in seen} == {100}


def test_a_librarys_bar_is_reported_and_not_drawn(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []
    with libraries_report(seen.append):
        assert list(logging.tqdm(["a", "b"], desc="Loading weights")) == ["a", "b"]
        logging.get_logger("transformers.test").warning("noise")
    assert seen == [Progress("loading", done, 2, "Loading the weights") for done in (1, 2)]
    assert capfd.readouterr() == ("", "")


def test_afterwards_the_libraries_are_as_they_were() -> None:
    verbosity = logging.get_verbosity()
    with pytest.raises(KeyError), libraries_report(lambda _: None):
        raise KeyError
    assert logging.get_verbosity() == verbosity
    assert logging.set_tqdm_hook(None) is None
