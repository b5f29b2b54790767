"""All clusters, and the state of one: its problems and its throughput."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from odradek.admin.finding import Finding, Severity
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page, open_plain
from odradek.console.snapshot import Point
from odradek.console.texts import rate_text, size_text, time_text
from odradek.console.watch import View

_ICONS = {
    Severity.BAD: ("error", "negative", "bad"),
    Severity.WARNING: ("warning", "warning", "warning"),
    Severity.NOTE: ("info", "info", "note"),
}
CHANGES_SHOWN = 8


def register(console: Console) -> None:
    @ui.page("/")
    def clusters(request: Request) -> None:
        session = open_plain(console, request)
        seen = [
            each for each in console.watches.values() if each.config.allows(session.user, Right.SEE, session.groups)
        ]
        if len(seen) == 1:
            ui.navigate.to(f"/c/{seen[0].config.name}")
        if not seen:
            ui.label("There is no cluster that you may see.").classes("text-h6")
        with ui.row():
            for watch in seen:
                with ui.card():
                    ui.link(watch.config.name, f"/c/{watch.config.name}").classes("text-h6")
                    ui.label(_in_words(watch.view))

    @ui.page("/c/{cluster}")
    def overview(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Overview")
        if page is not None:
            _overview(page)


def _in_words(view: View) -> str:
    if view.error:
        return f"not reached: {view.error}"
    if view.snapshot is None:
        return "not reached yet"
    bad = sum(each.severity is Severity.BAD for each in view.findings)
    state = f"{bad} bad" if bad else f"{len(view.findings)} to look at" if view.findings else "nothing wrong"
    return f"{len(view.brokers)} brokers, {len(view.topics)} topics; {state}"


def _overview(page: Page) -> None:
    with ui.row().classes("w-full items-stretch gap-2") as numbers:
        pass
    ui.label("What is wrong").classes("text-h6").props("role=heading aria-level=2")
    wrong = ui.column().classes("w-full gap-1")
    chart = ui.echart(_chart(())).classes("w-full h-64")
    ui.label("In-sync sets and leaders, lately").classes("text-h6").props("role=heading aria-level=2")
    lately = ui.column().classes("gap-0")

    def show() -> None:
        view = page.view
        numbers.clear()
        with numbers:
            for label, value in _numbers(view).items():
                with ui.card().classes("p-3 gap-0"):
                    ui.label(value).classes("text-h6")
                    ui.label(label).classes("text-caption")
        wrong.clear()
        with wrong:
            _show_wrong(view)
        chart.options.clear()
        chart.options.update(_chart(view.points))
        lately.clear()
        with lately:
            for change in view.changes[:CHANGES_SHOWN]:
                topic, index = change.partition
                ui.label(f"{time_text(change.at_ms)}  {topic}-{index}: {change.text}").classes("break-all")
            if not view.changes:
                ui.label("Nothing changed since the console looks.")

    page.shows(show)


def _numbers(view: View) -> dict[str, str]:
    if view.snapshot is None:
        return {}
    topics = view.topics.values()
    return {
        "brokers": f"{sum(broker.state == 'serves' for broker in view.brokers.values())} of {len(view.brokers)}",
        "topics": f"{len(view.topics):,}",
        "partitions": f"{sum(topic.partitions for topic in topics):,}",
        "out of sync": f"{sum(topic.out_of_sync for topic in topics):,}",
        "without a leader": f"{sum(topic.offline for topic in topics):,}",
        "records": rate_text(view.points[-1].records_s if len(view.points) > 1 else None),
        "bytes": f"{size_text(view.points[-1].bytes_s)}/s" if len(view.points) > 1 else "-",
        "on disk": size_text(sum(broker.bytes for broker in view.brokers.values())),
        "groups": f"{len(view.groups):,}",
        "largest lag": f"{max((group.lag for group in view.groups.values()), default=0):,}",
    }


def _show_wrong(view: View) -> None:
    for finding in view.findings:
        _show_finding(finding)
    if view.snapshot is not None and not view.findings:
        ui.label("Nothing that can be seen from here.")
    unknown = {**view.not_looked_at, **(view.snapshot.problems if view.snapshot else {})}
    for what, why in unknown.items():
        ui.label(f"Not looked at: {what}: {why}").classes("text-caption break-all")


def _show_finding(finding: Finding) -> None:
    icon, color, name = _ICONS[finding.severity]
    with ui.row().classes("items-start no-wrap w-full"):
        ui.icon(icon, color=color, size="sm").props(f'role=img aria-label="{name}"')
        with ui.column().classes("gap-0"):
            ui.label(finding.line).classes("font-bold break-words")
            ui.label(f"{finding.why[:1].upper()}{finding.why[1:]}.")
            ui.label(f"To do: {finding.fix}.").classes("text-caption")


def _chart(points: tuple[Point, ...]) -> dict[str, Any]:
    return {
        "animation": False,
        "legend": {"top": 0, "data": ["records/s", "MB/s"], "textStyle": {"color": "#888"}},
        "grid": {"left": 60, "right": 60, "top": 30, "bottom": 30},
        "xAxis": {"type": "time"},
        "yAxis": [{"type": "value", "name": "records/s"}, {"type": "value", "name": "MB/s"}],
        "series": [
            {
                "name": "records/s",
                "type": "line",
                "showSymbol": False,
                "data": [[point.at_ms, round(point.records_s, 1)] for point in points[1:]],
            },
            {
                "name": "MB/s",
                "type": "line",
                "showSymbol": False,
                "yAxisIndex": 1,
                "data": [[point.at_ms, round(point.bytes_s / 1e6, 3)] for point in points[1:]],
            },
        ],
    }
