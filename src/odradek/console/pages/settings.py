"""Settings of a topic, of a broker or of all brokers: those that were changed first, and changing them."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from odradek.admin.topic_plans import plan_setting
from odradek.client.admin import ResourceType, describe_configs
from odradek.client.cluster import Cluster
from odradek.common.numbers import INT32_MAX, parse_natural
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult as Setting
from odradek.settings.resources import ConfigSource

SHOWN_VALUE = 2000
# The order of sources: settings of the resource itself come first.
_SOURCES: dict[int, str] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "the file of its broker",
}
_ORDER = list(_SOURCES)


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/brokers/settings")
    async def broker_settings(request: Request, cluster: str, broker: str = "") -> None:
        known = not broker or parse_natural(broker, INT32_MAX) is not None
        title = f"Settings of broker {broker[:20]}" if broker else "Settings of all brokers"
        page = open_page(console, request, cluster, title)
        if page is None or not await page.opened():
            return
        if not known:
            ui.label("A broker has a number.")
            return
        if broker:
            ui.link("Settings of all brokers", page.path("brokers", "settings"))
        await Settings(page, ResourceType.BROKER, broker).show()


def _where(setting: Setting) -> int:
    return _ORDER.index(setting.config_source) if setting.config_source in _ORDER else len(_ORDER)


def _value(setting: Setting) -> str:
    if setting.is_sensitive:
        return "(not shown)"
    return "" if setting.value is None else setting.value[:SHOWN_VALUE]


_COLUMNS: list[Column[Setting]] = [
    Column("name", "Name", lambda row: row.name),
    Column("value", "Value", _value),
    Column("source", "From", lambda row: _SOURCES.get(row.config_source, "default"), _where),
]


class Settings:
    """The table, and the form under it."""

    def __init__(self, page: Page, kind: ResourceType, name: str) -> None:
        self._page = page
        self._kind = kind
        self._name = name
        self._found: list[Setting] = []

    async def show(self) -> None:
        """Ask and show them."""
        await self._load()
        table = PagedTable(
            self._page,
            _COLUMNS,
            lambda: sorted(self._found, key=lambda each: each.name),
            empty="No setting.",
            order="source",
            searched=self._kind is ResourceType.BROKER,
        )
        table.table.props("wrap-cells")
        if self._page.may(Right.CHANGE):
            self._form(table)

    async def _load(self) -> None:
        async def fetch(cluster: Cluster) -> list[Setting]:
            (found,) = await describe_configs(cluster, self._kind, [self._name])
            return found.configs

        self._found = await self._page.run(Right.SEE, fetch) or []

    def _form(self, table: PagedTable[Setting]) -> None:
        with ui.row().classes("items-end"):
            key = ui.input("Setting", autocomplete=[each.name for each in self._found]).props("dense").classes("w-72")
            value = ui.input("Value").props("dense").classes("w-72")

            async def change(*, own: bool) -> None:
                name = str(key.value or "").strip()
                wanted = str(value.value or "") if own else None
                if await self._page.carry_out(
                    lambda cluster: plan_setting(cluster, self._kind, self._name, name, wanted)
                ):
                    await self._load()
                    table.show()

            ui.button("Set", on_click=lambda: change(own=True))
            ui.button("Take away", on_click=lambda: change(own=False)).props("outline")
