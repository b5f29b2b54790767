"""Transactional ids and their state, and transactions that hang."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from fastapi import Request
from nicegui import ui

from odradek.client.cluster import Cluster
from odradek.client.transactions import (
    ListedTransaction,
    OpenTransaction,
    abort_in_partition,
    find_hanging,
    list_transactions,
    owner_of,
)
from odradek.console.browse import BrowseError
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.texts import time_text

# Kafka's default of transaction.max.timeout.ms: the coordinator may still end younger transactions.
MAX_TIMEOUT_MS = 15 * 60 * 1000

_TRANSACTIONS: list[Column[ListedTransaction]] = [
    Column("id", "Transactional id", lambda row: row.transactional_id),
    Column("state", "State", lambda row: row.state),
    Column("producer", "Producer id", lambda row: row.producer_id, lambda row: row.producer_id, right=True),
    Column("coordinator", "Coordinator", lambda row: row.coordinator_id, lambda row: row.coordinator_id, right=True),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/transactions")
    async def transactions(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Transactions")
        if page is not None and await page.opened():
            await _transactions(page)


async def _transactions(page: Page) -> None:
    found = await page.run(Right.SEE, list_transactions)
    PagedTable(page, _TRANSACTIONS, lambda: found or (), empty="No transactional id is known.")
    ui.label("Hanging transactions").classes("text-h6").props("role=heading aria-level=2")
    ui.label(
        "Those of which no coordinator knows, and that are silent for more than 15 minutes: readers of committed "
        "records wait for them."
    ).classes("text-caption")
    hanging = ui.column()

    async def fetch(cluster: Cluster) -> list[OpenTransaction]:
        snapshot = page.view.snapshot
        partitions = [key for key, each in snapshot.partitions if each.leader_id >= 0] if snapshot else []
        now_ms = time.time_ns() // 1_000_000
        return await find_hanging(cluster, partitions, now_ms=now_ms, max_timeout_ms=MAX_TIMEOUT_MS)

    async def load() -> None:
        those = await page.run(Right.SEE, fetch)
        hanging.clear()
        with hanging:
            for each in those or ():
                _show(page, each, load)
            if those == []:
                ui.label("No transaction hangs.")

    ui.button("Look for them", on_click=load).props("outline")


def _show(page: Page, hanging: OpenTransaction, load: Callable[[], Awaitable[None]]) -> None:
    where = f"{hanging.topic}-{hanging.partition_id}"
    producer = hanging.producer
    text = (
        f"{where} from offset {hanging.start_offset:,}, producer {producer.producer_id}, "
        f"silent since {time_text(producer.last_timestamp)}"
    )

    async def work(cluster: Cluster) -> None:
        owner = await owner_of(cluster, hanging)
        if owner is not None:
            raise BrowseError(f"{owner} has it open by now: its coordinator will end it")
        await abort_in_partition(cluster, hanging)

    async def abort() -> None:
        lines = [text, "Its records there are aborted: readers of committed records go on without them."]
        if await page.change(f"Abort the transaction in {where}", lines, work):
            await load()

    with ui.row().classes("items-center"):
        ui.label(text).classes("break-all")
        if page.may(Right.CHANGE):
            ui.button("Abort", color="negative", on_click=abort).props("outline dense")
