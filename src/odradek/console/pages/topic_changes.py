"""A new topic, more partitions, a topic deleted: forms, each with its preview and its question."""

from __future__ import annotations

from nicegui import ui

from odradek.admin.plan import Plan
from odradek.admin.topic_plans import plan_deletion, plan_partitions, plan_topic
from odradek.client.cluster import Cluster
from odradek.console.browse import BrowseError
from odradek.console.forms import parse_count, parse_new_topic
from odradek.console.pages.frame import Page


def new_topic(page: Page) -> None:
    """The form of a new topic."""
    ui.label("New topic").classes("text-h6").props("role=heading aria-level=2")
    with ui.row().classes("items-end"):
        name = ui.input("Name of the topic").props("dense").classes("w-72")
        partitions = ui.input("Partitions", placeholder="brokers' default").props("dense").classes("w-36")
        replicas = ui.input("Replicas", placeholder="brokers' default").props("dense").classes("w-36")
    settings = ui.textarea("Settings, one a line: key=value").props("outlined rows=3").classes("w-full max-w-xl")

    async def make() -> None:
        async def planning(cluster: Cluster) -> Plan:
            texts = (str(each.value or "") for each in (name, partitions, replicas, settings))
            return await plan_topic(cluster, parse_new_topic(*texts))

        if await page.carry_out(planning):
            ui.navigate.to(page.path("topics", str(name.value).strip()))

    ui.button("Preview", on_click=make)


def topic_changes(page: Page, topic: str) -> None:
    """The actions for an existing topic."""
    ui.label("Change the topic").classes("text-h6").props("role=heading aria-level=2")
    with ui.row().classes("items-end"):
        count = ui.input("Partitions in all").props("dense").classes("w-40")

        async def grow() -> None:
            async def planning(cluster: Cluster) -> Plan:
                wanted = parse_count(str(count.value or ""), "partitions")
                if wanted is None:
                    raise BrowseError("say how many partitions there shall be")
                return await plan_partitions(cluster, topic, wanted)

            await page.carry_out(planning)

        async def delete() -> None:
            if await page.carry_out(lambda cluster: plan_deletion(cluster, topic)):
                ui.navigate.to(page.path("topics"))

        ui.button("Add partitions", on_click=grow)
        ui.button("Delete topic", color="negative", on_click=delete).props("outline")
