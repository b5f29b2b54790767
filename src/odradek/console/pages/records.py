"""Records of a topic: from the end, from a time, by offset, as they come; searched, and one of them whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from nicegui import ui

from odradek.client.cluster import Cluster
from odradek.console.browse import (
    MAX_ROWS,
    Row,
    Search,
    SearchQuery,
    SearchResult,
    begin_following,
    browse,
    follow,
    parse_partitions,
    parse_start,
    read_one,
)
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import LOOK
from odradek.console.pages.write import write_record
from odradek.console.texts import FORMS, Shown, cell, shown, size_text, time_text
from odradek.record.record import Record

FOLLOW_S = 1.0
HEADERS_SHOWN = 50
_STARTS = {"end": "from the end", "beginning": "from the beginning", "time": "from a time", "offset": "from an offset"}
_COLUMNS = (
    ("at", "Time (UTC)", "gt-xs"),
    ("partition", "Part.", ""),
    ("offset", "Offset", ""),
    ("key", "Key", ""),
    ("value", "Value", ""),
    ("size", "Size", "gt-xs"),
)


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/topics/{topic}/records")
    async def records(request: Request, cluster: str, topic: str) -> None:
        page = open_page(console, request, cluster, f"Records of {topic[:260]}")
        if page is None:
            return
        if not page.may(Right.READ):
            ui.label(f"You may not read the records of cluster {page.cluster}.")
            return
        browser = Browser(page, topic)
        if await page.opened():
            await browser.read()


class Browser:
    """The form, the table, and one record beside it."""

    def __init__(self, page: Page, topic: str) -> None:
        self._page = page
        self._topic = topic
        self._next: dict[int, int] = {}
        self._following = False
        self._form()
        self._state = ui.label().props('role=status aria-live="polite"')
        columns = [
            {"name": name, "label": label, "field": name, "align": "left", "classes": css, "headerClasses": css}
            for name, label, css in _COLUMNS
        ]
        self._table = (
            ui.table(columns=columns, rows=[], row_key="id", pagination={"rowsPerPage": 50})
            .classes("w-full cursor-pointer")
            .props(LOOK)
            .props('wrap-cells virtual-scroll :rows-per-page-options="[20,50,100,0]"')
            .style("max-height: 60vh")
        )
        self._table.on("rowClick", self._open, [[], ["partition", "offset"], None])
        self._dialog = ui.dialog()
        ui.timer(FOLLOW_S, self._follow)

    def _form(self) -> None:
        with ui.row().classes("items-end w-full"):
            self._start = ui.select(_STARTS, value="end", label="Where").props("dense").classes("w-40")
            self._at = ui.input("Time (UTC) or offset", placeholder="2026-01-31 12:00").props("dense").classes("w-44")
            self._at.bind_visibility_from(self._start, "value", backward=lambda value: value in ("time", "offset"))
            self._partitions = ui.input("Partitions", placeholder="all, or 0,2").props("dense").classes("w-28")
            self._rows = ui.number("Rows", value=50, min=1, max=MAX_ROWS, precision=0).props("dense").classes("w-20")
        with ui.row().classes("items-end w-full"):
            self._key = ui.input("Key contains").props("dense clearable").classes("w-40")
            self._value = ui.input("Value contains").props("dense clearable").classes("w-56")
            self._header = (
                ui.input("Header contains", placeholder="name=value").props("dense clearable").classes("w-40")
            )
            self._page.search = self._value
            for field in (self._at, self._partitions, self._key, self._value, self._header):
                field.on("keydown.enter", self.read)
            self._committed = ui.checkbox("committed only", value=True)
            self._button = ui.button("Read", icon="search", on_click=self.read)
            self._live = ui.switch("Live", on_change=self._turn)
            if self._page.may(Right.CHANGE):
                ui.button("Write", icon="edit", on_click=lambda: write_record(self._page, self._topic)).props("outline")

    def _query(self) -> SearchQuery:
        """The request in the form. Raises BrowseError."""
        start = str(self._start.value)
        return SearchQuery(
            self._topic,
            parse_partitions(str(self._partitions.value or "")),
            start,
            parse_start(start, str(self._at.value or "")),
            min(MAX_ROWS, max(1, int(self._rows.value or 1))),
            Search(str(self._key.value or ""), str(self._value.value or ""), str(self._header.value or "")),
            bool(self._committed.value),
            self._page.watch.config.schemas.get(self._topic),
        )

    async def read(self) -> None:
        """Read the records of the form."""

        async def reading(cluster: Cluster) -> SearchResult:
            return await browse(cluster, self._query())

        self._button.disable()
        self._state.text = "Reading …"
        try:
            found = await self._page.run(Right.READ, reading)
        finally:
            self._button.enable()
        if found is None:
            self._state.text = "Nothing was read."
            return
        self._table.rows = [_cells(row) for row in found.rows]
        self._say(found)

    def _say(self, found: SearchResult) -> None:
        text = f"{len(found.rows):,} shown of {found.looked_at:,} records ({size_text(found.read_bytes)}) looked at."
        if found.ended:
            text += f" The search ended {found.ended}; begin elsewhere to go on."
        notes = "; ".join(found.notes[:5])
        self._state.text = f"{text} {notes}".strip()

    async def _turn(self) -> None:
        """Start the tail at the present end, whatever the form showed before."""
        self._next = {}
        if not self._live.value:
            return

        async def beginning(cluster: Cluster) -> dict[int, int]:
            return await begin_following(cluster, self._query())

        found = await self._page.run(Right.READ, beginning)
        if found is None:
            self._live.value = False
        else:
            self._next = found
            self._state.text = "Live: records that come from now on are shown on top."

    async def _follow(self) -> None:
        if not self._live.value or self._following or not self._next:
            return
        self._following = True
        try:
            found = await self._page.run(Right.READ, lambda cluster: follow(cluster, self._query(), self._next))
        finally:
            self._following = False
        if found is None:
            self._live.value = False
            return
        self._next |= found.next_offsets
        if found.rows:
            newest = [_cells(row) for row in found.rows]
            self._table.rows = [*newest, *self._table.rows][:MAX_ROWS]
            self._state.text = f"{len(newest)} came, of {found.looked_at} records."

    async def _open(self, event: Any) -> None:
        row = event.args[1]
        partition, offset = int(row["partition"]), int(row["offset"])
        record = await self._page.run(
            Right.READ,
            lambda cluster: read_one(cluster, self._topic, partition, offset, committed=bool(self._committed.value)),
        )
        if record is not None:
            self._show(partition, record)

    def _show(self, partition: int, record: Record) -> None:
        self._dialog.clear()
        schema = self._page.watch.config.schemas.get(self._topic)
        with self._dialog, ui.card().classes("w-full max-w-5xl"):
            with ui.row().classes("w-full items-center"):
                ui.label(f"{self._topic}-{partition}, offset {record.offset}").classes("text-h6 break-all")
                ui.space()
                ui.button(icon="close", on_click=self._dialog.close).props('flat round dense aria-label="Close"')
            ui.label(f"Time: {time_text(record.timestamp_ms)} UTC")
            _part("Key", record.key, None)
            _part("Value", record.value, schema)
            _headers(record.headers)
        self._dialog.open()


def _part(title: str, data: bytes | None, schema: str | None) -> None:
    with ui.row().classes("items-center w-full"):
        ui.label(f"{title}, {size_text(len(data or b''))}").classes("text-subtitle1")
        choice = ui.select(list(FORMS), value="auto", label=f"{title} as").props("dense").classes("w-28")
    note = ui.label().classes("text-caption")
    # The text of a record is a text, whatever is in it.
    text = (
        ui.element("pre")
        .classes("w-full whitespace-pre-wrap break-all m-0 text-sm")
        .style("max-height: 50vh; overflow: auto")
    )
    with text:
        content = ui.label()

    def show() -> None:
        found: Shown = shown(data, str(choice.value), schema)
        note.text = "; ".join(each for each in (found.form, found.note) if each)
        content.text = found.text

    choice.on_value_change(show)
    show()


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    ui.label(f"Headers: {len(headers)}").classes("text-subtitle1")
    for name, value in headers[:HEADERS_SHOWN]:
        ui.label(f"{name[:200]}: {cell(value)}").classes("break-all")
    if len(headers) > HEADERS_SHOWN:
        ui.label(f"… and {len(headers) - HEADERS_SHOWN} more")


def _cells(row: Row) -> dict[str, Any]:
    return {
        "id": f"{row.partition}/{row.offset}",
        "at": time_text(row.timestamp_ms),
        "partition": row.partition,
        "offset": row.offset,
        "key": row.key,
        "value": row.value,
        "size": size_text(row.size),
    }
