"""What was measured, as a table, as JSON, and in between as medians over the rounds."""

from __future__ import annotations

import json
import platform
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from rich.table import Table

from chat.bench.measures import MEMORY, Figures


@dataclass
class Report:
    """Figures of every target, in the order they came."""

    model: str = ""
    notes: list[str] = field(default_factory=list)
    _rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, target: str, figures: Figures) -> None:
        """Take in what a measure gave."""
        rounds = self._rounds.setdefault(target, defaultdict(list))
        for name, value in figures.items():
            rounds[name].append(value)

    @property
    def figures(self) -> dict[str, Figures]:
        """The median of each figure, by target; of the memory the most."""
        return {
            target: {name: (max if name == MEMORY else statistics.median)(values) for name, values in rounds.items()}
            for target, rounds in self._rounds.items()
        }

    @property
    def rows(self) -> list[str]:
        """Names of the figures, in the order of the first target that has them all; memory last."""
        names = list(dict.fromkeys(name for figures in self.figures.values() for name in figures if name != MEMORY))
        return [*names, MEMORY] if any(MEMORY in figures for figures in self.figures.values()) else names

    def table(self) -> Table:
        """Return one table, a column for each target."""
        table = Table(title=f"{self.model}\n{describe_machine()}", caption="\n".join(self.notes) or None)
        table.add_column("", no_wrap=True)
        for target in self.figures:
            table.add_column(target, justify="right", overflow="fold")
        for row in self.rows:
            table.add_row(row, *(_format(figures.get(row)) for figures in self.figures.values()))
        return table

    def write_json(self, file: Path) -> None:
        """Write everything that the table shows."""
        content: dict[str, Any] = {
            "model": self.model,
            "machine": describe_machine(),
            "figures": self.figures,
            "notes": self.notes,
        }
        file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def describe_machine() -> str:
    """Name the processor, the memory, the accelerator, and the libraries that compute."""
    parts = [f"{_processor()}, {psutil.cpu_count()} cores", f"{psutil.virtual_memory().total / 2**30:.0f} GiB"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join([*parts, f"torch {torch.__version__}", f"transformers {transformers.__version__}"])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _format(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
