"""Brokers, racks and disks; the quorum; leaders and in-sync replicas."""

from __future__ import annotations

import time
from typing import Any

from fastapi import Request
from nicegui import ui

from odradek.admin.lagging import lagging_replicas
from odradek.common.topic_names import TopicPartition
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.snapshot import BrokerRow, InSyncChange
from odradek.console.texts import size_text, time_text
from odradek.protocol.messages.describe_quorum_response import ReplicaState
from odradek.protocol.messages.metadata_response import MetadataResponsePartition

_WHY = {
    "fenced": "its broker is away",
    "silent": "its broker does not answer: it is paused, or its machine is not reached",
    "slow": "it fetches, and has not come so far yet",
    "stuck": "its broker answers and fetches nothing: it may be cut off from the leader, or its disk fails",
}


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/brokers")
    def brokers(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Brokers")
        if page is not None:
            PagedTable(
                page,
                _BROKERS,
                lambda: page.view.brokers.values(),
                href=lambda row: page.path("brokers", "settings") + f"?broker={row.broker}",
                empty="No broker is known.",
                searched=False,
            )
            ui.link("Settings of all brokers", page.path("brokers", "settings"))

    @ui.page("/c/{cluster}/quorum")
    def quorum(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Quorum")
        if page is not None:
            _quorum(page)

    @ui.page("/c/{cluster}/replication")
    def replication(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Leaders and replicas")
        if page is not None:
            _replication(page)


def _disk(row: BrokerRow) -> str:
    if row.disk_total < 0:
        return "-"
    return f"{size_text(row.disk_usable)} of {size_text(row.disk_total)}"


_BROKERS: list[Column[BrokerRow]] = [
    Column("broker", "Broker", lambda row: row.broker, lambda row: row.broker),
    Column("state", "State", lambda row: row.state),
    Column("rack", "Rack", lambda row: row.rack or "-"),
    Column("address", "Address", lambda row: row.address, wide=True),
    Column("leaders", "Leads", lambda row: f"{row.leaders:,}", lambda row: row.leaders, right=True),
    Column("replicas", "Replicas", lambda row: f"{row.replicas:,}", lambda row: row.replicas, right=True),
    Column("out", "Out of sync", lambda row: f"{row.out_of_sync:,}", lambda row: row.out_of_sync, right=True),
    Column("bytes", "Data", lambda row: size_text(row.bytes), lambda row: row.bytes, right=True),
    Column("disk", "Free on disk", _disk, lambda row: row.disk_usable, right=True, wide=True),
    Column(
        "directories",
        "Directories",
        lambda row: (
            f"{row.directories} ({row.offline_directories} offline)" if row.offline_directories else row.directories
        ),
        lambda row: row.directories,
        right=True,
        wide=True,
    ),
]


def _quorum(page: Page) -> None:
    state = ui.label()

    def rows() -> list[tuple[str, ReplicaState]]:
        quorum = page.view.snapshot.quorum if page.view.snapshot else None
        if quorum is None:
            return []
        return [
            *(("leader" if each.replica_id == quorum.leader_id else "voter", each) for each in quorum.current_voters),
            *(("observer", each) for each in quorum.observers),
        ]

    def end() -> int:
        return max((each.log_end_offset for _, each in rows()), default=0)

    def show() -> None:
        snapshot = page.view.snapshot
        if snapshot is None or snapshot.quorum is None:
            state.text = "The quorum is not known." if snapshot else ""
        else:
            quorum = snapshot.quorum
            leader = f"Node {quorum.leader_id} leads" if quorum.leader_id >= 0 else "No node leads"
            state.text = f"{leader}, epoch {quorum.leader_epoch}; {quorum.high_watermark:,} records are committed."

    page.shows(show)
    columns: list[Column[tuple[str, ReplicaState]]] = [
        Column("node", "Node", lambda row: row[1].replica_id, lambda row: row[1].replica_id),
        Column("role", "Role", lambda row: row[0]),
        Column(
            "end", "Log end", lambda row: f"{row[1].log_end_offset:,}", lambda row: row[1].log_end_offset, right=True
        ),
        Column("lag", "Behind", lambda row: f"{end() - row[1].log_end_offset:,}", right=True),
        Column("caught", "Caught up", lambda row: _ago(row[1].last_caught_up_timestamp), right=True),
    ]
    PagedTable(page, columns, rows, empty="The quorum is not known.", searched=False)


def _ago(at_ms: int) -> str:
    if at_ms < 0:
        return "-"
    return f"{max(0.0, time.time() - at_ms / 1000):.0f} s ago"


def _replication(page: Page) -> None:
    chart = ui.echart(_bars([])).classes("w-full h-64")

    def show() -> None:
        chart.options.clear()
        chart.options.update(_bars(list(page.view.brokers.values())))

    page.shows(show)
    ui.label("Partitions that are not fully in sync").classes("text-h6").props("role=heading aria-level=2")
    PagedTable(page, _PARTITIONS, lambda: page.view.not_in_sync, empty="All replicas are in sync.", searched=False)
    reasons = ui.column().classes("gap-0")

    async def explain() -> None:
        found = await page.run(Right.SEE, lagging_replicas)
        reasons.clear()
        with reasons:
            for row in found or ():
                ui.label(f"{row['topic']}-{row['partition']}, broker {row['broker']}: {_WHY[row['why']]}{_behind(row)}")
            if found == []:
                ui.label("All replicas are in sync.")

    ui.button("Explain", on_click=explain).props("outline")
    ui.label("Changes").classes("text-h6").props("role=heading aria-level=2")
    changes: list[Column[InSyncChange]] = [
        Column("at", "Time (UTC)", lambda row: time_text(row.at_ms), lambda row: row.at_ms),
        Column("partition", "Partition", lambda row: f"{row.partition[0]}-{row.partition[1]}"),
        Column("what", "What", lambda row: row.text),
    ]
    PagedTable(
        page,
        changes,
        lambda: page.view.changes,
        empty="Nothing changed since the console looks.",
        descending=True,
        searched=False,
    )


def _behind(row: dict[str, Any]) -> str:
    missing = row["missing_bytes"]
    return "" if missing is None else f"; {size_text(missing)} are missing"


def ids(nodes: list[int]) -> str:
    """Brokers of a partition, for a table."""
    return ", ".join(map(str, nodes)) or "-"


_PARTITIONS: list[Column[tuple[TopicPartition, MetadataResponsePartition]]] = [
    Column("partition", "Partition", lambda row: f"{row[0][0]}-{row[0][1]}", lambda row: row[0]),
    Column(
        "leader",
        "Leader",
        lambda row: row[1].leader_id if row[1].leader_id >= 0 else "none",
        lambda row: row[1].leader_id,
    ),
    Column("replicas", "Replicas", lambda row: ids(row[1].replica_nodes)),
    Column("in_sync", "In sync", lambda row: ids(row[1].isr_nodes)),
    Column("out", "Out", lambda row: ids(sorted({*row[1].replica_nodes} - {*row[1].isr_nodes}))),
]


def _bars(rows: list[BrokerRow]) -> dict[str, Any]:
    series = {
        "leads": [row.leaders for row in rows],
        "follows in sync": [max(0, row.replicas - row.leaders - row.out_of_sync) for row in rows],
        "out of sync": [row.out_of_sync for row in rows],
    }
    colors = ("#24527a", "#7aa6c8", "#c62828")
    return {
        "animation": False,
        "tooltip": {"trigger": "axis"},
        "legend": {"top": 0, "data": list(series), "textStyle": {"color": "#888"}},
        "grid": {"left": 60, "right": 20, "top": 30, "bottom": 30},
        "xAxis": {"type": "category", "data": [f"broker {row.broker}" for row in rows]},
        "yAxis": {"type": "value", "name": "replicas"},
        "series": [
            {"name": name, "type": "bar", "stack": "all", "data": data, "itemStyle": {"color": color}}
            for (name, data), color in zip(series.items(), colors, strict=True)
        ],
    }
