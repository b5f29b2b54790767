"""Lists the panels of a Grafana dashboard that have data: a Prometheus that scrapes a cluster evaluates the queries.

    python -m tools.dashboard_panels strimzi-kafka.json --prometheus http://127.0.0.1:9090 --set kafka_topic=.*

Variables of the dashboard are replaced by the values of --set, others by `.*`, and $__rate_interval by one minute.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INTERVALS = {"__rate_interval": "1m", "__interval": "15s", "__range": "5m"}
_VARIABLE = re.compile(r"\$\{?(\w+)(?::\w+)?\}?|\[\[(\w+)\]\]")
_NOT_METRICS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, as PromQL without variables."""

    panel: str
    text: str

    @property
    def metrics(self) -> list[str]:
        """The names of metrics in it."""
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", " ", self.text)
        bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
        names = re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])", bare)
        return sorted({name for name in names if name not in _NOT_METRICS})


def queries_of(dashboard: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Query]:
    """All queries of all panels, those in rows as well."""
    for panel in dashboard.get("panels") or ():
        for target in panel.get("targets") or ():
            if target.get("expr"):
                yield Query(panel.get("title") or "", replaced(target["expr"], values))
        yield from queries_of(panel, values)
    for row in dashboard.get("rows") or ():
        yield from queries_of(row, values)


def replaced(text: str, values: Mapping[str, str]) -> str:
    """A query without Grafana's variables."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return _INTERVALS.get(name) or values.get(name, ".*")

    return " ".join(_VARIABLE.sub(value, text).split())


def evaluate(prometheus: str, text: str, timeout_s: float = 60) -> list[dict[str, Any]]:
    """The series that a query gives now; raises HTTPError where it is no PromQL."""
    asked = urllib.parse.urlencode({"query": text})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{asked}", timeout=timeout_s) as answer:
        data = json.load(answer)["data"]
    return list(data["result"]) if data["resultType"] == "vector" else [{"value": data["result"]}]


def has_data(series: list[dict[str, Any]]) -> bool:
    """Whether there is a number to draw."""
    return any(each["value"][1] != "NaN" for each in series)


def main() -> int:
    """Print a line for each panel; returns the exit code, 1 where one has no data."""
    parser = argparse.ArgumentParser(description="Which panels of Grafana dashboards have data.")
    parser.add_argument("dashboards", nargs="+", type=Path)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--set", action="append", default=[], metavar="VARIABLE=VALUE")
    args = parser.parse_args()
    values = dict(each.split("=", 1) for each in args.set)
    empty = 0
    for path in args.dashboards:
        panels: dict[str, list[tuple[Query, bool]]] = {}
        for query in queries_of(json.loads(path.read_text()), values):
            found = has_data(evaluate(args.prometheus, query.text))
            panels.setdefault(query.panel, []).append((query, found))
        for panel, queries in panels.items():
            filled = sum(found for _, found in queries)
            missing = sorted({name for query, found in queries if not found for name in query.metrics})
            empty += filled < len(queries)
            print("\t".join([path.stem, panel, f"{filled} of {len(queries)}", *missing]))
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
