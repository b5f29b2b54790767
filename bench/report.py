"""Makes the table of the page in docs from runs: ratios within a round, and their medians."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.cells import Cell


@dataclass(slots=True)
class Run:
    """One run of one cell against one broker."""

    value: float
    cpu_s: float
    moved_bytes: int
    record_count: int


@dataclass(slots=True)
class Row:
    """All rounds of one cell: the two runs of a round were made one right after the other."""

    cell: Cell
    rounds: list[tuple[Run, Run]] = field(default_factory=list)  # (Apache Kafka, Odradek)

    def ratios(self) -> list[float]:
        """Odradek against Apache Kafka in each round; above 1 is better for Odradek in every row."""
        pairs = [(kafka.value, ours.value) for kafka, ours in self.rounds]
        if self.cell.better == "lower":
            return [kafka / max(ours, 1e-9) for kafka, ours in pairs]
        return [ours / max(kafka, 1e-9) for kafka, ours in pairs]

    def median(self, which: int) -> float:
        return statistics.median(pair[which].value for pair in self.rounds)

    def cpu_per_gb(self, which: int) -> float:
        return statistics.median(pair[which].cpu_s / max(pair[which].moved_bytes, 1) * 1e9 for pair in self.rounds)

    def cpu_per_million(self, which: int) -> float:
        return statistics.median(pair[which].cpu_s / max(pair[which].record_count, 1) * 1e6 for pair in self.rounds)


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


HEADER = (
    "| cell | unit | {0} | Odradek | ratio, median (lowest to highest) | "
    "CPU s per GB: {0} | Odradek | CPU s per million records: {0} | Odradek |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def table(rows: Sequence[Row], *, against: str = "Apache Kafka") -> str:
    """The rows as Markdown. Of cells that share a run, only the first shows the processor time of it."""
    lines = [HEADER.format(against)]
    shown: set[tuple[str, str]] = set()
    for row in rows:
        ratios = row.ratios()
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        cells = [row.cell.name, row.cell.unit, number(row.median(0)), number(row.median(1)), spread]
        run = (row.cell.mode, repr(row.cell.options))
        if run in shown or row.cell.mode == "latency":
            cells += ["", "", "", ""]
        else:
            cells += [f"{row.cpu_per_gb(0):.2f}", f"{row.cpu_per_gb(1):.2f}"]
            cells += [f"{row.cpu_per_million(0):.2f}", f"{row.cpu_per_million(1):.2f}"]
        shown.add(run)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
