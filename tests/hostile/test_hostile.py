"""The hostile hour in some seconds, so that it does not rot; and the crowd's script."""

from __future__ import annotations

from tests.hostile.__main__ import main
from tests.hostile.crowd import main as stream_to_crowd


def test_visitors_with_bad_manners_leave_nothing_behind(capsys):
    """T5, T6, H4, H5, G11: no thread, task, stream, socket or file, and nobody else's reply suffers."""
    assert main(["--minutes", "0.1", "--visitors", "12", "--browsers", "0", "--seed", "1"]) == 0, (
        capsys.readouterr().out
    )


def test_a_crowd_reads_without_an_error(capsys):
    """S4, H5"""
    stream_to_crowd(["--visitors", "20", "--copies", "1", "--seconds", "2"])
    assert "errors: none" in capsys.readouterr().out
