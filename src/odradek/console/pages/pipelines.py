"""Pipelines of Spark that write their progress to the cluster, and how far each of their flows is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from nicegui import ui

from odradek.client.pipeline_progress import TOPIC
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.pages.topics import number
from odradek.console.texts import pipeline_errors, pipeline_text, rate_text, size_text

Row = Mapping[str, Any]
_PIPELINES: list[Column[Row]] = [
    Column("said", "Pipeline", lambda row: pipeline_text(row, time.time()), lambda row: row["pipeline"]),
    Column("errors", "What went wrong", pipeline_errors),
]
_FLOWS: list[Column[Row]] = [
    Column("flow", "Flow", lambda row: row["flow"]),
    Column("pipeline", "Pipeline", lambda row: row["pipeline"]),
    Column("target", "To", lambda row: row["target"], wide=True),
    Column("status", "State", lambda row: row["status"]),
    Column("read", "Rows read", lambda row: number(row["rows_read"]), lambda row: row["rows_read"], right=True),
    Column(
        "written", "Rows written", lambda row: number(row["rows_written"]), lambda row: row["rows_written"], right=True
    ),
    Column("lag", "Lag", lambda row: number(row["lag"]), lambda row: row["lag"], right=True),
    Column("rate", "Rate", lambda row: rate_text(row["rate"]), lambda row: row["rate"], right=True, wide=True),
    Column("ms", "Batch, ms", lambda row: number(row["batch_ms"]), lambda row: row["batch_ms"], right=True, wide=True),
    Column("size", "State kept", lambda row: _size(row), lambda row: row["state_bytes"], right=True, wide=True),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/pipelines")
    async def pipelines(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Pipelines")
        if page is not None and await page.opened():
            await _Pipelines(page).show()


class _Pipelines:
    """The last word of each pipeline, read on while the page is open."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._found: Mapping[str, Row] = {}

    async def show(self) -> None:
        reading = self._page.watch.pipelines.get
        found = await self._page.run(Right.READ, reading)
        if found is None:
            ui.label(f"Pipelines cannot be shown: topic {TOPIC} cannot be read.")
            return
        self._found = found
        pipelines = PagedTable(
            self._page,
            _PIPELINES,
            lambda: self._found.values(),
            empty="No pipeline writes its progress to this cluster: `odradek pipeline run --progress-to` does.",
            searched=False,
        )
        pipelines.table.props("wrap-cells")
        flows = PagedTable(
            self._page,
            _FLOWS,
            lambda: [{**flow, "pipeline": name} for name, each in self._found.items() for flow in each["flows"]],
            empty="No flow has said how far it is.",
        )

        async def refresh() -> None:
            found = await self._page.run_quietly(Right.READ, reading)
            if found is not None:
                self._found = found
                pipelines.show()
                flows.show()

        ui.timer(self._page.watch.every_s, refresh)


def _size(row: Row) -> str:
    return "-" if row["state_bytes"] is None else size_text(row["state_bytes"])
