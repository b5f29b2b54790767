"""Moves of replicas: progress, begin, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from odradek.client.cluster import Cluster
from odradek.client.reassignment import Move, move_replicas
from odradek.common.errors import ApiError
from odradek.common.topic_names import TopicPartition
from odradek.console.browse import BrowseError
from odradek.console.clusters import Right
from odradek.console.forms import parse_move
from odradek.console.pages.brokers import ids
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.snapshot import Snapshot
from odradek.console.texts import size_text


@dataclass(frozen=True, slots=True)
class _Row:
    key: TopicPartition
    move: Move
    copied: int
    total: int

    @property
    def share(self) -> str:
        if not self.move.adding:
            return "removing"
        done = f"{min(1.0, self.copied / self.total):.0%}" if self.total else "-"
        return f"{done} of {size_text(self.total)}"


_MOVES: list[Column[_Row]] = [
    Column("partition", "Partition", lambda row: f"{row.key[0]}-{row.key[1]}", lambda row: row.key),
    Column("adding", "Comes to", lambda row: ids(list(row.move.adding))),
    Column("removing", "Leaves", lambda row: ids(list(row.move.removing))),
    Column("share", "Copied", lambda row: row.share, lambda row: row.copied, right=True),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/moves")
    def moves(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Moves of replicas")
        if page is not None:
            PagedTable(page, _MOVES, lambda: _rows(page.view.snapshot), empty="Nothing moves.", searched=False)
            if page.may(Right.CHANGE):
                _form(page)


def _rows(snapshot: Snapshot | None) -> list[_Row]:
    if snapshot is None:
        return []
    rows = []
    for key, move in snapshot.moves.items():
        partition = snapshot.partition(key)
        size = snapshot.size_of(key, partition.leader_id if partition is not None else -1)
        copied = sum(min(size, snapshot.size_of(key, broker)) for broker in move.adding)
        rows.append(_Row(key, move, copied, size * len(move.adding)))
    return rows


def _form(page: Page) -> None:
    ui.label("Move a partition").classes("text-h6").props("role=heading aria-level=2")
    with ui.row().classes("items-end"):
        topic = ui.input("Topic").props("dense").classes("w-52")
        partition = ui.input("Partition").props("dense").classes("w-24")
        brokers = ui.input("To brokers", placeholder="1,2,3").props("dense").classes("w-40")

    async def begin() -> None:
        try:
            key, wanted = parse_move(page.view.snapshot, str(topic.value), str(partition.value), str(brokers.value))
        except BrowseError as error:
            ui.notify(str(error), type="negative")
            return
        snapshot = page.view.snapshot
        found = snapshot.partition(key) if snapshot is not None else None
        assert snapshot is not None
        assert found is not None
        now = found.replica_nodes
        size = size_text(snapshot.size_of(key, found.leader_id))
        lines = [
            f"{key[0]}-{key[1]} is on brokers {ids(now)}, and will be on {ids(wanted)}; the first leads.",
            f"{size} are copied to each of {ids(sorted({*wanted} - {*now}))}, without a throttle.",
        ]
        await page.change(f"Move {key[0]}-{key[1]}", lines, lambda cluster: _moved(cluster, {key: wanted}))

    async def cancel() -> None:
        ongoing = dict(page.view.snapshot.moves) if page.view.snapshot else {}
        lines = [f"{topic}-{index} stays where it was." for topic, index in sorted(ongoing)] or ["Nothing moves."]
        await page.change("Give up all moves", lines, lambda cluster: _moved(cluster, dict.fromkeys(ongoing)))

    with ui.row():
        ui.button("Preview", on_click=begin)
        ui.button("Give up all moves", color="negative", on_click=cancel).props("outline")


async def _moved(cluster: Cluster, wanted: Mapping[TopicPartition, list[int] | None]) -> None:
    refusals: list[ApiError] = [each for each in (await move_replicas(cluster, wanted)).values() if each is not None]
    if refusals:
        raise refusals[0]
