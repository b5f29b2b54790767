"""Writes a record to a topic: a form, a preview, and the position of the record."""

from __future__ import annotations

from nicegui import ui

from odradek.client.cluster import Cluster
from odradek.client.produce import produce_record
from odradek.console.clusters import Right
from odradek.console.forms import parse_partition, parse_record
from odradek.console.pages.frame import Page

MAX_VALUE_SIGNS = 1_000_000


async def write_record(page: Page, topic: str) -> None:
    """Ask for a record, and write it."""
    with ui.dialog() as dialog, ui.card().classes("w-full max-w-3xl"):
        ui.label(f"Write a record to {topic}").classes("text-h6 break-all")
        with ui.row().classes("w-full"):
            key = ui.input("Key").props("dense").classes("grow")
            partition = ui.input("Partition", placeholder="by the key").props("dense").classes("w-32")
        value = ui.textarea("Value").props(f"outlined maxlength={MAX_VALUE_SIGNS}").classes("w-full")
        headers = ui.textarea("Headers, one a line: name=value").props("outlined rows=2").classes("w-full")
        null = ui.checkbox("null instead of a value: what a compacted topic takes for a deletion")

        async def write() -> None:
            async def writing(cluster: Cluster) -> tuple[int, int]:
                record = parse_record(
                    str(key.value or ""), None if null.value else str(value.value or ""), str(headers.value or "")
                )
                return await produce_record(
                    cluster, topic, record, partition=parse_partition(str(partition.value or ""))
                )

            found = await page.run(Right.CHANGE, writing)
            if found is not None:
                ui.notify(f"Written to partition {found[0]}, offset {found[1]}.", type="positive")
                dialog.submit(True)

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button("Write it", color="negative", on_click=write)
    try:
        await dialog
    finally:
        dialog.delete()
