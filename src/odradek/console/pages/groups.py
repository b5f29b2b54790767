"""The pages of groups: lag over time, members, the timeline, and a reset of offsets with a preview."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from nicegui import ui

from odradek.admin.group_advice import advice, details
from odradek.admin.offset_reset import ResetPlan, apply_reset, check_idle, plan_reset
from odradek.client.cluster import Cluster
from odradek.client.groups import GroupDescription, GroupMember, delete_group, describe_group, group_timeline
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.console.browse import BrowseError
from odradek.console.clusters import Right
from odradek.console.forms import parse_position
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.console.pages.topics import number
from odradek.console.snapshot import GroupRow
from odradek.console.texts import rate_text, time_text
from odradek.console.watch import View

PREVIEW_ROWS = 200
# Kinds of groups that other APIs describe.
_NOT_DESCRIBED = frozenset({"share", "streams"})
EVENTS_SHOWN = 50
_TO = {
    "earliest": "to the first record",
    "latest": "behind the last record",
    "offset": "to an offset",
    "time": "to a time (UTC)",
    "shift": "by so many records",
}

_GROUPS: list[Column[GroupRow]] = [
    Column("group", "Group", lambda row: row.group),
    Column("state", "State", lambda row: row.state),
    Column("kind", "Kind", lambda row: row.kind, wide=True),
    Column("topics", "Topics", lambda row: row.topics, lambda row: row.topics, right=True, wide=True),
    # A share group commits no offsets: its lag is another number (KIP-1226).
    Column("lag", "Lag", lambda row: "-" if row.kind == "share" else f"{row.lag:,}", lambda row: row.lag, right=True),
    Column("records_s", "Commits", lambda row: rate_text(row.records_s), lambda row: row.records_s, right=True),
]


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/groups")
    def groups(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Groups")
        if page is not None:
            PagedTable(
                page,
                _GROUPS,
                lambda: page.view.groups.values(),
                href=lambda row: page.path("groups", "one") + f"?name={page.quoted(row.group)}",
                empty="No group.",
                order="lag",
                descending=True,
            )

    # A group's name may be anything, a slash included.
    @ui.page("/c/{cluster}/groups/one")
    async def group(request: Request, cluster: str, name: str = "") -> None:
        page = open_page(console, request, cluster, f"Group {name[:260]}")
        if page is not None and await page.opened():
            await _group(page, name)


@dataclass(frozen=True, slots=True)
class _Offset:
    key: TopicPartition
    committed: int | None
    end: int | None
    member: str

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


_OFFSETS: list[Column[_Offset]] = [
    Column("partition", "Partition", lambda row: f"{row.key[0]}-{row.key[1]}", lambda row: row.key),
    Column("committed", "Committed", lambda row: number(row.committed), lambda row: row.committed, right=True),
    Column("end", "End", lambda row: number(row.end), lambda row: row.end, right=True, wide=True),
    Column("lag", "Lag", lambda row: number(row.lag), lambda row: row.lag, right=True),
    Column("member", "Member", lambda row: row.member or "-", wide=True),
]

_MEMBERS: list[Column[GroupMember]] = [
    Column("member", "Member", lambda row: row.instance_id or row.member_id),
    Column("client", "Client", lambda row: row.client_id),
    Column("host", "Host", lambda row: row.client_host, wide=True),
    Column("partitions", "Partitions", lambda row: len(row.assignment), lambda row: len(row.assignment), right=True),
]


async def _group(page: Page, name: str) -> None:
    async def fetch(cluster: Cluster) -> tuple[GroupDescription, dict[str, Any] | None]:
        return await describe_group(cluster, name), await group_timeline(cluster, name)

    listed = page.view.groups.get(name)
    if listed is not None and listed.kind in _NOT_DESCRIBED:
        ui.label(f"Group {name[:260]} is a {listed.kind} group: the console shows neither its members nor its offsets.")
        return
    found = await page.run(Right.SEE, fetch)
    if found is None:
        ui.label(f"Group {name[:260]} cannot be shown: it does not exist, or the cluster does not answer.")
        return
    group, timeline = found
    ui.label(
        f"{group.kind}, {group.state}; assignor {group.assignor or '-'}; coordinated by broker {group.coordinator_id}"
    )
    chart = ui.echart(_chart(page.view, name)).classes("w-full h-48")

    def show() -> None:
        chart.options.clear()
        chart.options.update(_chart(page.view, name))

    page.shows(show)
    readers = {key: member.instance_id or member.member_id for member in group.members for key in member.assignment}
    PagedTable(page, _OFFSETS, lambda: _offsets(page, name, readers), empty="It has committed nothing.", searched=False)
    ui.label("Members").classes("text-h6").props("role=heading aria-level=2")
    PagedTable(page, _MEMBERS, lambda: group.members, empty="It has no members.", searched=False)
    _show_timeline(timeline)
    if page.may(Right.CHANGE):
        _reset(page, name)


def _offsets(page: Page, name: str, readers: dict[TopicPartition, str]) -> list[_Offset]:
    snapshot = page.view.snapshot
    if snapshot is None:
        return []
    committed = snapshot.groups[name].offsets if name in snapshot.groups else {}
    return [
        _Offset(key, committed.get(key), snapshot.ends.get(key), readers.get(key, ""))
        for key in sorted({*committed, *readers})
    ]


def _show_timeline(timeline: dict[str, Any] | None) -> None:
    ui.label("What happened lately").classes("text-h6").props("role=heading aria-level=2")
    if timeline is None:
        ui.label("Its coordinator keeps no timeline: it is not a broker of Odradek.")
        return
    for line in advice(timeline["events"]):
        with ui.row().classes("items-start no-wrap"):
            ui.icon("tips_and_updates", color="warning")
            ui.label(line).classes("break-all")
    for event in reversed(timeline["events"][-EVENTS_SHOWN:]):
        who = event["instance_id"] or event["member_id"]
        text = " ".join(part for part in (time_text(event["at_ms"]), event["kind"], who, details(event)) if part)
        ui.label(text).classes("text-sm break-all")
    if not timeline["events"]:
        ui.label("Nothing that its coordinator remembers.")


def _reset(page: Page, name: str) -> None:
    ui.label("Reset offsets").classes("text-h6").props("role=heading aria-level=2")
    ui.label("Of a group without members. First it is shown what would be.").classes("text-caption")
    with ui.row().classes("items-end"):
        to = ui.select(_TO, value="latest", label="Where to").props("dense").classes("w-52")
        at = ui.input("Offset, time or number").props("dense").classes("w-48")
        at.bind_visibility_from(to, "value", backward=lambda value: value in ("offset", "time", "shift"))
        topic = ui.input("Topic", placeholder="all it has committed for").props("dense").classes("w-52")

    async def preview() -> None:
        async def planning(cluster: Cluster) -> ResetPlan:
            await check_idle(cluster, name)
            chosen: list[tuple[str, list[int]]] = (
                [(str(topic.value).strip(), [])] if str(topic.value or "").strip() else []
            )
            return await plan_reset(cluster, name, chosen, parse_position(str(to.value), str(at.value or "")))

        plan = await page.run(Right.CHANGE, planning)
        if plan is not None:
            await page.change(f"Reset offsets of {name}", preview_lines(plan), lambda cluster: _apply(cluster, plan))

    async def remove() -> None:
        lines = [f"Group {name} and all that it has committed are forgotten. A group with members is refused."]
        if await page.change(f"Delete group {name}", lines, lambda cluster: delete_group(cluster, name)):
            ui.navigate.to(page.path("groups"))

    with ui.row():
        ui.button("Preview", on_click=preview)
        ui.button("Delete group", on_click=remove, color="negative").props("outline")


async def _apply(cluster: Cluster, plan: ResetPlan) -> None:
    await check_idle(cluster, plan.group)
    try:
        await apply_reset(cluster, plan)
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            raise BrowseError(f"group {plan.group} has members by now; stop them first") from None
        raise


def preview_lines(plan: ResetPlan) -> list[str]:
    """The preview of a reset, a line for each partition."""
    lines = [
        f"{topic}-{index}: {'nothing' if before is None else f'{before:,}'} → {after:,}{_moved(before, after)}"
        for (topic, index), (before, after) in sorted(plan.offsets.items())
    ]
    more = len(lines) - PREVIEW_ROWS
    return [
        *plan.warnings[:PREVIEW_ROWS],
        *lines[:PREVIEW_ROWS],
        *([f"… and {more:,} partitions more"] if more > 0 else []),
    ]


def _moved(before: int | None, after: int) -> str:
    if before is None or before == after:
        return ""
    return f" ({after - before:,} records are skipped)" if after > before else f" ({before - after:,} are read again)"


def _chart(view: View, name: str) -> dict[str, Any]:
    return {
        "animation": False,
        "grid": {"left": 60, "right": 20, "top": 30, "bottom": 30},
        "xAxis": {"type": "time"},
        "yAxis": {"type": "value", "name": "lag, records", "minInterval": 1},
        "series": [
            {
                "type": "line",
                "showSymbol": False,
                "areaStyle": {"opacity": 0.2},
                "data": [[point.at_ms, point.lag[name]] for point in view.points if name in point.lag],
            }
        ],
    }
