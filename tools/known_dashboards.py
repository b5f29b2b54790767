"""The queries of public dashboards, and whether a node answers them: the facts behind docs/metrics-kafka.md.

`known_dashboards.tsv` has a line for each query of a panel: the metric, and the labels by which it is chosen or summed,
without those that the scrape configuration adds. If a query has alternatives, the line has the one that a node answers.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.server.kafka_names.not_given import NOT_GIVEN
from odradek.server.kafka_names.table import TABLE

_FACTS = Path(__file__).with_suffix(".tsv")
ROWS = {row.name: row for row in TABLE}
# The prefix of the metrics that prometheus_client has of a process.
PROCESS = "process_"


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a panel."""

    dashboard: str
    panel: str
    metric: str
    labels: Mapping[str, str]

    @property
    def why_not(self) -> str:
        """The reason why there are no data; "" if there are some."""
        selectors = "".join(f'{{{name}="{value}"}}' for name, value in self.labels.items() if name == "request")
        for pattern, reason in NOT_GIVEN.items():
            name, _, selector = pattern.partition("{")
            if fnmatch.fnmatch(self.metric, name) and (not selector or selectors == "{" + selector):
                return reason
        return "" if self.metric in ROWS or self.metric.startswith(PROCESS) else "unknown"

    @property
    def query(self) -> str:
        """PromQL of ours that asks the same: one series for each value of the labels."""
        chosen = ", ".join(f'{name}="{value}"' if value else f'{name}!=""' for name, value in self.labels.items())
        counts = f"{self.metric}{{{chosen}}}"
        return f"rate({counts}[1m])" if self.metric.endswith("_total") else counts


def asked() -> Iterator[Asked]:
    """The queries of all lines of the file."""
    for line in _FACTS.read_text().splitlines()[1:]:
        dashboard, panel, metric, labels = line.split("\t")
        pairs = (each.partition("=") for each in labels.split())
        yield Asked(dashboard, panel, metric, {name: value for name, _, value in pairs})


def panels() -> dict[tuple[str, str], list[Asked]]:
    """(dashboard, panel) -> its queries, in their order."""
    found: dict[tuple[str, str], list[Asked]] = {}
    for each in asked():
        found.setdefault((each.dashboard, each.panel), []).append(each)
    return found
