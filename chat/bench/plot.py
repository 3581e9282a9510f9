"""The figures as a picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from chat.bench.measures import DECODE, first_token, users
from chat.bench.report import Report, describe_machine


def draw(report: Report, turns: int, counts: list[int], file: Path) -> None:
    """Draw four panels into a .png or .svg file."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    figure.suptitle(f"{report.model}\n{describe_machine()}", fontsize=10)
    (decode, by_turn), (total, waiting) = figure.subplots(2, 2)
    for number, (target, figures) in enumerate(report.figures.items()):
        style = {"label": target, "color": f"C{number}", "marker": "o"}
        decode.bar(target, figures.get(DECODE, 0), color=f"C{number}")
        for panel, places, rows in (
            (by_turn, range(1, turns + 1), [first_token(turn) for turn in range(1, turns + 1)]),
            (total, counts, [users(count, "tokens/s") for count in counts]),
            (waiting, counts, [users(count, "worst first token, s") for count in counts]),
        ):
            points = [(place, figures[row]) for place, row in zip(places, rows, strict=True) if row in figures]
            if points:
                panel.plot(*zip(*points, strict=True), **style)
    for panel, title, x in (
        (decode, "One user: tokens a second after the first", ""),
        (by_turn, "Seconds to the first token", "turn of one conversation"),
        (total, "Tokens a second, all users together", "users at once"),
        (waiting, "Seconds to the first token of the last user", "users at once"),
    ):
        panel.set(title=title, xlabel=x, ylim=(0, None))
        panel.grid(axis="y", alpha=0.3)
    by_turn.set_xticks(range(1, turns + 1))
    total.set_xticks(counts)
    waiting.set_xticks(counts)
    by_turn.legend()
    figure.savefig(file, dpi=120)
