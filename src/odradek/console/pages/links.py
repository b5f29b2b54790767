"""Links to other clusters: the lag and the problems of mirrors; pause, resume, promote, fail over."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from odradek.admin.link_facts import Row
from odradek.admin.link_plans import plan_end, plan_state
from odradek.admin.plan import Plan
from odradek.client.cluster import Cluster
from odradek.console.clusters import Right
from odradek.console.forms import parse_names
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.pages.topics import number
from odradek.console.texts import link_lines, reason_text, size_text
from odradek.settings.links import MirrorState

_ACTIONS = {
    "pause": "Pause: fetch nothing more for now",
    "resume": "Resume: go on with what was paused",
    "promote": "Promote: make them topics, while the source answers",
    "failover": "Fail over: make them topics without the source",
}
_MIRRORS: list[Column[Row]] = [
    Column("mirror", "Mirror", lambda row: _name(row), lambda row: (row["topic"], row["partition"])),
    Column("link", "Link", lambda row: row["link"], wide=True),
    Column("state", "State", lambda row: row["state"]),
    Column("end", "End", lambda row: number(row["end"]), lambda row: row["end"], right=True, wide=True),
    Column(
        "source_end", "Source's end", lambda row: number(row["source_end"]), lambda row: row["source_end"], True, True
    ),
    Column("lag", "Lag", lambda row: number(row["lag"]), lambda row: row["lag"], right=True),
    Column("seconds", "Behind", lambda row: _seconds(row["lag_seconds"]), lambda row: row["lag_seconds"], right=True),
    Column("bytes", "Bytes", lambda row: size_text(row["bytes"]), lambda row: row["bytes"], right=True, wide=True),
    Column("reason", "What keeps it", lambda row: reason_text(row)),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/links")
    async def links(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Links")
        if page is not None and await page.opened():
            await _Links(page).show()


class _Links:
    """The state of links, requested periodically while a page is open, once for all pages."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._found: list[Row] = []
        self._shown: list[list[str]] | None = None

    async def show(self) -> None:
        fetch = self._page.watch.links.get
        found = await self._page.run(Right.SEE, fetch)
        if found is None:
            ui.label("Links cannot be shown: brokers describe them to who may see their settings.")
            return
        self._found = found
        about = ui.column().classes("w-full gap-1")
        table = PagedTable(
            self._page,
            _MIRRORS,
            lambda: [{**row, "link": link["link"]} for link in self._found for row in link["partitions"]],
            empty="Nothing is mirrored. Brokers of Odradek mirror topics of other clusters; Apache Kafka's do not.",
        )
        if self._page.may(Right.CHANGE) and found:
            _form(self._page, [link["link"] for link in found])

        def describe() -> None:
            # Positions of mirrors change all the time, the texts of links do not.
            cards = [_lines(link) for link in self._found]
            if cards == self._shown:
                return
            self._shown = cards
            about.clear()
            with about:
                for lines in cards:
                    _show_link(lines)
                if not cards:
                    ui.label("No link: no topic here mirrors one of another cluster.")

        async def refresh() -> None:
            found = await self._page.run_quietly(Right.SEE, fetch)
            if found is not None and found is not self._found:
                self._found = found
                describe()
                table.show()

        describe()
        ui.timer(self._page.watch.every_s, refresh)


def _lines(link: Row) -> list[str]:
    return [f"{link['link']} mirrors from {link['source']}", *link_lines(link)]


def _show_link(lines: list[str]) -> None:
    with ui.card().classes("w-full p-3 gap-0"):
        ui.label(lines[0]).classes("text-subtitle1 break-all")
        for line in lines[1:]:
            ui.label(line).classes("break-all")


def _name(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}" if row["partition"] >= 0 else row["topic"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _form(page: Page, names: list[str]) -> None:
    ui.label("Change mirrors").classes("text-h6").props("role=heading aria-level=2")
    with ui.row().classes("items-end w-full"):
        link = ui.select(names, value=names[0], label="Link").props("dense").classes("w-40")
        action = ui.select(_ACTIONS, value="pause", label="What to do").props("dense").classes("w-96 max-w-full")
        topics = ui.input("Topics", placeholder="all mirrors of the link").props("dense").classes("w-72")

    async def planning(cluster: Cluster) -> Plan:
        return await planned(cluster, str(link.value), str(action.value), str(topics.value or ""))

    ui.button("Preview", on_click=lambda: page.carry_out(planning))


async def planned(cluster: Cluster, link: str, action: str, topics: str) -> Plan:
    """The plan of the form. Raises PlanError, ApiError."""
    names = parse_names(topics)
    if action in ("pause", "resume"):
        state = MirrorState.PAUSED if action == "pause" else MirrorState.ACTIVE
        return await plan_state(cluster, link, names, state)
    return await plan_end(cluster, link, names, is_reached=action == "promote")
