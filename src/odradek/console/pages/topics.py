"""The pages of topics: settings (changed ones first), partitions, and the groups that read a topic."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from odradek.client.admin import ResourceType
from odradek.client.cluster import Cluster
from odradek.client.groups import EARLIEST, list_offsets
from odradek.console.clusters import Right
from odradek.console.pages.brokers import ids
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.settings import Settings
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.pages.topic_changes import new_topic, topic_changes
from odradek.console.snapshot import TopicRow
from odradek.console.texts import rate_text, size_text

_TOPICS: list[Column[TopicRow]] = [
    Column("topic", "Topic", lambda row: row.topic),
    Column("partitions", "Partitions", lambda row: f"{row.partitions:,}", lambda row: row.partitions, right=True),
    Column("replicas", "Replicas", lambda row: row.replicas, lambda row: row.replicas, right=True, wide=True),
    Column("bytes", "Size", lambda row: size_text(row.bytes), lambda row: row.bytes, right=True),
    Column("records_s", "Records", lambda row: rate_text(row.records_s), lambda row: row.records_s, right=True),
    Column(
        "bytes_s",
        "Bytes",
        lambda row: "-" if row.bytes_s is None else f"{size_text(row.bytes_s)}/s",
        lambda row: row.bytes_s,
        right=True,
        wide=True,
    ),
    Column("out", "Out of sync", lambda row: row.out_of_sync, lambda row: row.out_of_sync, right=True, wide=True),
    Column("offline", "No leader", lambda row: row.offline, lambda row: row.offline, right=True, wide=True),
    Column("groups", "Groups", lambda row: row.groups, lambda row: row.groups, right=True, wide=True),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/topics")
    def topics(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Topics")
        if page is None:
            return
        kept = {"internal": False}

        def rows() -> list[TopicRow]:
            return [row for row in page.view.topics.values() if kept["internal"] or not row.internal]

        table = PagedTable(page, _TOPICS, rows, href=lambda row: page.path("topics", row.topic), empty="No topic.")

        def turn(event: object) -> None:
            kept["internal"] = bool(getattr(event, "value", False))
            table.show()

        ui.switch("Internal topics, too", on_change=turn)
        if page.may(Right.CHANGE):
            new_topic(page)

    @ui.page("/c/{cluster}/topics/{topic}")
    async def topic(request: Request, cluster: str, topic: str) -> None:
        page = open_page(console, request, cluster, topic[:260])
        if page is not None and await page.opened():
            await _topic(page, topic)


@dataclass(frozen=True, slots=True)
class _Partition:
    index: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    first: int | None
    end: int | None
    bytes: int


async def _topic(page: Page, topic: str) -> None:
    async def fetch(cluster: Cluster) -> bool:
        return bool((await cluster.topic(topic)).partitions)

    async def fetch_first(cluster: Cluster) -> dict[tuple[str, int], int]:
        found = await cluster.topic(topic)
        led = [(topic, each.partition_index) for each in found.partitions if each.leader_id >= 0]
        return await list_offsets(cluster, dict.fromkeys(led, EARLIEST))

    if await page.run(Right.SEE, fetch) is None:
        ui.label(f"Topic {topic[:260]} cannot be shown: it does not exist, or the cluster does not answer.")
        return
    first = await page.run(Right.SEE, fetch_first) or {}
    if page.may(Right.READ):
        ui.link("Records", page.path("topics", topic, "records")).classes("text-subtitle1")
    summary = ui.label()

    def show() -> None:
        row = page.view.topics.get(topic)
        if row is not None:
            rate = rate_text(row.records_s, " records")
            summary.text = f"{size_text(row.bytes)} on disk in all replicas; {rate} come in."

    page.shows(show)
    _partitions(page, topic, first)
    _readers(page, topic)
    ui.label("Settings, those of the topic itself first").classes("text-h6").props("role=heading aria-level=2")
    await Settings(page, ResourceType.TOPIC, topic).show()
    if page.may(Right.CHANGE):
        topic_changes(page, topic)


def _partitions(page: Page, topic: str, first: dict[tuple[str, int], int]) -> None:
    def rows() -> list[_Partition]:
        snapshot = page.view.snapshot
        if snapshot is None or topic not in snapshot.topics:
            return []
        return [
            _Partition(
                each.partition_index,
                each.leader_id,
                each.replica_nodes,
                each.isr_nodes,
                first.get((topic, each.partition_index)),
                snapshot.ends.get((topic, each.partition_index)),
                snapshot.size_of((topic, each.partition_index), each.leader_id),
            )
            for each in snapshot.topics[topic].partitions
        ]

    columns: list[Column[_Partition]] = [
        Column("partition", "Partition", lambda row: row.index, lambda row: row.index),
        Column("leader", "Leader", lambda row: row.leader if row.leader >= 0 else "none", lambda row: row.leader),
        Column("replicas", "Replicas", lambda row: ids(row.replicas)),
        Column("in_sync", "In sync", lambda row: ids(row.in_sync)),
        Column("first", "First offset", lambda row: number(row.first), lambda row: row.first, right=True, wide=True),
        Column("end", "End", lambda row: number(row.end), lambda row: row.end, right=True, wide=True),
        Column("bytes", "Size", lambda row: size_text(row.bytes), lambda row: row.bytes, right=True),
    ]
    PagedTable(page, columns, rows, empty="No partition is known.", searched=False)


def number(value: int | None) -> str:
    """A count for a table."""
    return "-" if value is None else f"{value:,}"


def _readers(page: Page, topic: str) -> None:
    ui.label("Groups that read it").classes("text-h6").props("role=heading aria-level=2")

    def rows() -> list[tuple[str, int]]:
        snapshot = page.view.snapshot
        if snapshot is None:
            return []
        return [
            (
                name,
                sum(max(0, snapshot.ends.get(key, at) - at) for key, at in group.offsets.items() if key[0] == topic),
            )
            for name, group in snapshot.groups.items()
            if any(key[0] == topic for key in group.offsets)
        ]

    columns: list[Column[tuple[str, int]]] = [
        Column("group", "Group", lambda row: row[0]),
        Column("lag", "Lag", lambda row: f"{row[1]:,}", lambda row: row[1], right=True),
    ]
    PagedTable(
        page,
        columns,
        rows,
        href=lambda row: page.path("groups", "one") + f"?name={page.quoted(row[0])}",
        empty="No group has committed offsets for it.",
        searched=False,
    )
