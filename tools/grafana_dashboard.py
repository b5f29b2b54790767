"""Our Grafana dashboard, made of the table below: `make docs` writes deploy/monitoring/odradek-dashboard.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

WIDTH = 24
# The label matchers that select nodes; they replace AT in the queries.
_CHOSEN = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's name of it.
        queries: (legend, PromQL), where `AT` stands for the chosen nodes.
        text: an explanation, if the title is not enough.
        bad_from: the value from which a number is red; None: none is.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    kind: str = "timeseries"
    width: int = 8
    bad_from: float | None = None


def _stat(title: str, query: str, *, bad_from: float | None = None, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, unit, (("", query),), text, "stat", 3, bad_from)


def _rate(name: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({name}{{AT}}[$__rate_interval]))"


def _percentile(name: str, by: str, more: str = "", quantile: float = 0.99) -> str:
    chosen = f"AT, {more}" if more else "AT"
    buckets = f"sum by ({by}, le) (rate({name}_bucket{{{chosen}}}[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {buckets})"


_ONE = '(max by (job) ({0}{{job=~"$job"}}))'
DASHBOARD: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it well?",
        (
            _stat("Nodes that answer", 'sum(up{job=~"$job"})'),
            _stat("Active controllers", 'sum(odradek_controller_active{job=~"$job"})', text="One in each cluster."),
            _stat("Partitions without a leader", _ONE.format("odradek_cluster_partitions_without_leader"), bad_from=1),
            _stat("Partitions under min ISR", 'sum(odradek_partitions_under_min_isr{job=~"$job"})', bad_from=1),
            _stat("Partitions under-replicated", 'sum(odradek_partitions_under_replicated{job=~"$job"})', bad_from=1),
            _stat("Fenced brokers", _ONE.format("odradek_cluster_brokers_fenced"), bad_from=1),
            _stat("Largest lag of a group", 'max(odradek_group_lag_seconds{job=~"$job"})', unit="s", bad_from=600),
            _stat(
                "Fullest disk",
                'max(1 - odradek_log_directory_free_bytes{job=~"$job"}'
                ' / odradek_log_directory_size_bytes{job=~"$job"})',
                unit="percentunit",
                bad_from=0.85,
            ),
        ),
    ),
    (
        "What goes through",
        (
            Panel("Records written", "cps", (("{{topic}}", _rate("odradek_topic_produced_records_total", "topic")),)),
            Panel(
                "Bytes in and out",
                "Bps",
                (
                    ("{{instance}} from producers", _rate("odradek_produced_bytes_total")),
                    ("{{instance}} to readers", _rate("odradek_fetched_bytes_total")),
                    ("{{instance}} from leaders", _rate("odradek_replica_fetched_bytes_total")),
                ),
            ),
            Panel("Requests", "reqps", (("{{api}}", _rate("odradek_requests_total", "api")),)),
            Panel(
                "Bytes written by topic", "Bps", (("{{topic}}", _rate("odradek_topic_produced_bytes_total", "topic")),)
            ),
            Panel("Bytes read by topic", "Bps", (("{{topic}}", _rate("odradek_topic_fetched_bytes_total", "topic")),)),
            Panel(
                "Refused",
                "cps",
                (
                    ("writes to {{topic}}", _rate("odradek_topic_produce_failures_total", "topic")),
                    ("reads of {{topic}}", _rate("odradek_topic_fetch_failures_total", "topic")),
                    ("requests {{api}}", _rate("odradek_request_errors_total", "api")),
                ),
            ),
        ),
    ),
    (
        "How fast",
        (
            Panel(
                "Produce, 99th percentile",
                "s",
                (("{{phase}}", _percentile("odradek_request_seconds", "phase", 'api="Produce"')),),
                "By phase; docs/metrics.md says what each is.",
            ),
            Panel(
                "Fetch, 99th percentile",
                "s",
                (("{{phase}}", _percentile("odradek_request_seconds", "phase", 'api="Fetch"')),),
                "Of consumers. A Fetch waits for data: that is its remote phase.",
            ),
            Panel(
                "Other requests, 99th percentile",
                "s",
                (
                    (
                        "{{api}}",
                        _percentile("odradek_request_seconds", "api", 'api!~"Produce|Fetch.*", phase="total"'),
                    ),
                ),
            ),
            Panel(
                "How busy the loop is",
                "percentunit",
                (("{{instance}}", _rate("odradek_loop_cpu_seconds_total")),),
                "All requests of a node share one event loop: at 1 it can do no more.",
            ),
            Panel(
                "How late the loop is",
                "s",
                (
                    ("{{instance}} 99th percentile", _percentile("odradek_loop_late_seconds", "instance")),
                    ("{{instance}} largest", "max by (instance) (odradek_loop_max_late_seconds{AT})"),
                ),
            ),
            Panel(
                "Waiting",
                "short",
                (
                    ("{{instance}} Produce", "odradek_produces_waiting{AT}"),
                    ("{{instance}} Fetch", "odradek_fetches_waiting{AT}"),
                    ("{{instance}} for memory", "odradek_request_memory_waiting{AT}"),
                ),
            ),
        ),
    ),
    (
        "Groups",
        (
            Panel(
                "Lag in seconds",
                "s",
                (("{{group}} {{topic}}", "max by (group, topic) (odradek_group_lag_seconds{AT})"),),
            ),
            Panel("Lag in records", "short", (("{{group}}", "sum by (group) (odradek_group_lag_sum_records{AT})"),)),
            Panel(
                "Not known",
                "short",
                (
                    ("{{instance}} partitions without an answer", "odradek_group_lag_unknown{AT}"),
                    ("{{instance}} partitions left out", "odradek_group_lag_left_out{AT}"),
                ),
            ),
        ),
    ),
    (
        "Replication and the quorum",
        (
            Panel(
                "Lag of followers",
                "short",
                (("{{instance}}", "max by (instance) (odradek_replica_max_lag_records{AT})"),),
                "Records that the follower which is furthest behind lacks.",
            ),
            Panel(
                "In-sync sets",
                "short",
                (
                    ("{{instance}} shrinks", "increase(odradek_isr_shrinks_total{AT}[$__rate_interval])"),
                    ("{{instance}} expansions", "increase(odradek_isr_expansions_total{AT}[$__rate_interval])"),
                ),
            ),
            Panel(
                "Leaders and partitions",
                "short",
                (
                    ("{{instance}} leads", "odradek_partitions_led{AT}"),
                    ("{{instance}} has", "odradek_partitions{AT}"),
                ),
            ),
            Panel("Metadata that nodes lack", "short", (("{{instance}}", "odradek_metadata_lag_records{AT}"),)),
            Panel(
                "Lag of the quorum",
                "short",
                (("node {{node}}", "max by (node) (odradek_quorum_replica_lag_records{AT})"),),
            ),
            Panel(
                "Epoch and unclean elections",
                "short",
                (
                    ("epoch", "max(odradek_quorum_epoch{AT})"),
                    ("unclean", "max(odradek_cluster_unclean_elections_total{AT})"),
                ),
            ),
        ),
    ),
    (
        "Storage",
        (
            Panel("Free space", "bytes", (("{{instance}} {{directory}}", "odradek_log_directory_free_bytes{AT}"),)),
            Panel("Size of topics", "bytes", (("{{topic}}", "sum by (topic) (odradek_log_size_bytes{AT})"),)),
            Panel(
                "Failed directories, damage, repairs",
                "short",
                (
                    ("{{instance}} directories", "odradek_log_directories_offline{AT}"),
                    ("{{instance}} damage", "odradek_scrub_damage_total{AT}"),
                    ("{{instance}} repaired", "odradek_repaired_batches_total{AT}"),
                ),
            ),
            Panel(
                "Compaction",
                "short",
                (
                    ("{{instance}} runs", "increase(odradek_cleaner_runs_total{AT}[$__rate_interval])"),
                    ("{{instance}} cannot be cleaned", "odradek_cleaner_uncleanable_logs{AT}"),
                ),
            ),
            Panel(
                "Transactions",
                "cps",
                (
                    ("{{instance}} committed", _rate("odradek_transactions_committed_total")),
                    ("{{instance}} aborted", _rate("odradek_transactions_aborted_total")),
                    ("{{instance}} late", "odradek_partitions_with_late_transactions{AT}"),
                ),
            ),
            Panel("Connections", "short", (("{{instance}} {{listener}}", "odradek_listener_connections{AT}"),)),
        ),
    ),
    (
        "Who is let in",
        (
            Panel(
                "Logins",
                "cps",
                (
                    ("{{listener}}", _rate("odradek_logins_total", "listener")),
                    ("{{listener}} failed", _rate("odradek_logins_failed_total", "listener")),
                ),
            ),
            Panel(
                "Held up by quotas",
                "s",
                tuple(
                    (
                        "{{user}} {{client_id}} " + kind,
                        _rate(f"odradek_{kind}_throttle_seconds_total", "user, client_id"),
                    )
                    for kind in ("produce", "fetch", "request", "controller_mutation")
                ),
                "Seconds of waiting in a second.",
            ),
            Panel(
                "Certificates: time that is left",
                "s",
                (("{{instance}} {{listener}}", "odradek_certificate_expiry_seconds{AT} - time()"),),
            ),
        ),
    ),
)


def dashboard() -> str:
    """The text of the file."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in DASHBOARD:
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": _place(0, y, WIDTH, 1)})
        y += 1
        x = 0
        for panel in row:
            height = 4 if panel.kind == "stat" else 8
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            panels.append(_panel(panel, _place(x, y, panel.width, height)))
            x += panel.width
        y += height
    for number, each in enumerate(panels, 1):
        each["id"] = number
    made = {
        "title": "Odradek",
        "uid": "odradek",
        "tags": ["odradek"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("job", "label_values(odradek_metadata_offset, job)"),
                _variable("instance", 'label_values(odradek_metadata_offset{job=~"$job"}, instance)'),
            ]
        },
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "query": query,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + number), "expr": query.replace("AT", _CHOSEN), "legendFormat": legend}
            for number, (legend, query) in enumerate(panel.queries)
        ],
    }
