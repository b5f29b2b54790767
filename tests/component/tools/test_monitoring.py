"""Alerts and the dashboard in deploy/monitoring, without a Prometheus: their metrics exist and are documented."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.dashboard_panels import Query, queries_of, replaced

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
KNOWN = set(re.findall(r"^\| `(\S+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)) | {"up"}
(GROUP,) = yaml.safe_load((FOLDER / "odradek-rules.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
DASHBOARD = json.loads((FOLDER / "odradek-dashboard.json").read_text())


def unknown(text: str) -> set[str]:
    """Metrics that a query names and no node has; docs/metrics.md has what a scrape has, as a test of it says."""
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in Query("", text).metrics}
    assert names, text
    return names - KNOWN


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert unknown(rule["expr"]) == set()
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]


def test_each_alert_is_explained_once() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert page.count("*Do:*") == len(RULES)


def test_each_query_of_the_dashboard_asks_for_metrics_that_there_are() -> None:
    queries = list(queries_of(DASHBOARD, {}))
    assert len(queries) > 50
    assert {each.panel: unknown(each.text) for each in queries if unknown(each.text)} == {}


def test_a_dashboard_is_read_with_rows_and_variables() -> None:
    inner = {"title": "inner", "targets": [{"expr": 'sum(rate(a_total{topic=~"$topic"}[$__rate_interval]))'}]}
    board = {"panels": [{"type": "row", "panels": [inner]}], "rows": [{"panels": [{"targets": [{"expr": "b"}]}]}]}
    assert list(queries_of(board, {"topic": "orders"})) == [
        Query("inner", 'sum(rate(a_total{topic=~"orders"}[1m]))'),
        Query("", "b"),
    ]
    assert replaced("${one:regex} [[two]] $three", {"one": "1", "two": "2"}) == "1 2 .*"
    text = 'max by (group, le) (a_bucket{x="y"}) / on (group) group_left (name) b or time() - c{d=~"e"} > bool 1'
    assert Query("", text).metrics == ["a_bucket", "b", "c"]


def test_promtool_takes_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: apt-get install prometheus")
    for kind, name in (("rules", "odradek-rules.yml"), ("config", "prometheus.yml")):
        done = subprocess.run(
            ["promtool", "check", kind, name], cwd=FOLDER, capture_output=True, text=True, timeout=150
        )
        assert done.returncode == 0, done.stderr
