"""The pages of ACLs, users and quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from nicegui import ui
from nicegui.events import GenericEventArguments

from odradek.admin.access_plans import (
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    QUOTAS,
    RESOURCES,
    acl_cells,
    all_acls,
    entity_in_words,
    parse_acl,
    parse_entity,
    plan_acl,
    plan_acl_removal,
    plan_password,
    plan_quota,
    plan_quota_removal,
    plan_user_removal,
)
from odradek.admin.plan import Plan
from odradek.client.cluster import Cluster
from odradek.client.quotas import Entity, list_quotas
from odradek.client.users import list_users
from odradek.common.scram import SCRAM_MECHANISMS
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable

R = TypeVar("R")
MAX_PASSWORD_SIGNS = 500


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/access")
    async def access(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Access and quotas")
        if page is None or not await page.opened():
            return
        await _acls(page)
        await _users(page)
        await _quotas(page)


class _Listing:
    """A table whose rows are requested once, and again after each change."""

    def __init__(
        self,
        page: Page,
        columns: list[Column[Any]],
        work: Callable[[Cluster], Awaitable[list[Any]]],
        empty: str,
        removal: Callable[[Cluster, Any], Awaitable[Plan]],
    ) -> None:
        self._page = page
        self._columns = columns
        self._work = work
        self._empty = empty
        self._removal = removal
        self._rows: list[Any] | None = None
        self._table: PagedTable[Any] | None = None

    async def show(self, *, searched: bool) -> None:
        """Request the rows, and create the table."""
        self._rows = await self._page.run(Right.SEE, self._work)
        self._table = PagedTable(
            self._page,
            self._columns,
            lambda: self._rows or (),
            empty="It could not be asked." if self._rows is None else self._empty,
            searched=searched,
            act=("Remove", self._remove) if self._page.may(Right.CHANGE) else None,
        )

    async def carry_out(self, planning: Callable[[Cluster], Awaitable[Plan]]) -> None:
        """A change, and the table as it is then."""
        if await self._page.carry_out(planning):
            self._rows = await self._page.run(Right.SEE, self._work)
            if self._table is not None:
                self._table.show()

    async def _remove(self, row: Any) -> None:
        await self.carry_out(lambda cluster: self._removal(cluster, row))


async def _acls(page: Page) -> None:
    _section("ACLs")
    labels = {"principal": "Principal", "permission": "Permission", "operation": "Operation", "resource": "Resource"}
    columns: list[Column[Any]] = [
        Column(name, label, lambda row, at=at: acl_cells(row)[at])  # type: ignore[misc]  # the default of `at`
        for at, (name, label) in enumerate(labels.items())
    ]
    columns.append(Column("host", "Host", lambda row: row.host, wide=True))
    table = _Listing(page, columns, all_acls, "No ACL.", plan_acl_removal)
    await table.show(searched=True)
    if not page.may(Right.CHANGE):
        return
    ui.label("New ACL").classes("text-subtitle1")
    with ui.row().classes("items-end"):
        principal = ui.input("Principal", placeholder="User:name").props("dense").classes("w-52")
        permission = ui.select(list(PERMISSIONS), value="ALLOW", label="Permission").props("dense").classes("w-28")
        operation = ui.select(list(OPERATIONS), value="READ", label="Operation").props("dense").classes("w-44")
        host = ui.input("Host", placeholder="from everywhere").props("dense").classes("w-40")
    with ui.row().classes("items-end"):
        resource = ui.select(list(RESOURCES), value="TOPIC", label="Resource").props("dense").classes("w-44")
        pattern = ui.select(list(PATTERNS), value="LITERAL", label="Pattern").props("dense").classes("w-36")
        name = ui.input("Name of the resource").props("dense").classes("w-60")
    fields = (principal, permission, operation, resource, pattern, name, host)

    async def planning(cluster: Cluster) -> Plan:
        return await plan_acl(cluster, parse_acl(*(str(each.value or "") for each in fields)))

    ui.button("Preview", on_click=lambda: table.carry_out(planning))


async def _list_users(cluster: Cluster) -> list[tuple[str, str]]:
    found = await list_users(cluster)
    return [(user, ", ".join(sorted(mechanisms))) for user, mechanisms in found.items()]


async def _users(page: Page) -> None:
    _section("Users that log in by SCRAM")
    columns: list[Column[Any]] = [
        Column("user", "User", lambda row: row[0]),
        Column("mechanisms", "Mechanisms", lambda row: row[1]),
    ]
    table = _Listing(page, columns, _list_users, "No user.", lambda cluster, row: plan_user_removal(cluster, row[0]))
    await table.show(searched=False)
    if not page.may(Right.CHANGE):
        return
    ui.label("New user, or a new password").classes("text-subtitle1")
    with ui.row().classes("items-end"):
        name = ui.input("User").props("dense autocomplete=off").classes("w-52")
        by = ui.select(list(SCRAM_MECHANISMS), value=list(SCRAM_MECHANISMS), label="By", multiple=True)
        by.props("dense").classes("w-60")
        # The values of other inputs are stored on the server, which sends them again with each change.
        secret = ui.element("input").props(
            f'type=password autocomplete=new-password maxlength={MAX_PASSWORD_SIGNS} placeholder="Password" '
            'aria-label="Password"'
        )
        secret.classes("border rounded p-2")

        async def set_password(event: GenericEventArguments) -> None:
            given = str(event.args or "")
            await table.carry_out(
                lambda cluster: plan_password(cluster, str(name.value or ""), given, list(by.value or ()))
            )

        take = f"() => {{ const field = getHtmlElement({secret.id}); emit(field.value); field.value = ''; }}"
        ui.button("Preview").on("click", set_password, js_handler=take)


async def _list_quotas(cluster: Cluster) -> list[tuple[Entity, str, float]]:
    return [(entity, key, value) for entity, values in await list_quotas(cluster, {}) for key, value in values.items()]


async def _quotas(page: Page) -> None:
    _section("Quotas")
    columns: list[Column[Any]] = [
        Column("entity", "Of", lambda row: entity_in_words(row[0])),
        Column("key", "Quota", lambda row: row[1]),
        Column("value", "Value", lambda row: f"{row[2]:,.10g}", lambda row: row[2], right=True),
    ]
    table = _Listing(
        page, columns, _list_quotas, "No quota.", lambda cluster, row: plan_quota_removal(cluster, row[0], row[1])
    )
    await table.show(searched=False)
    if not page.may(Right.CHANGE):
        return
    ui.label("New quota, or another value").classes("text-subtitle1")
    with ui.row().classes("items-end"):
        user = ui.input("User", placeholder="* is the default").props("dense").classes("w-44")
        client = ui.input("Client id", placeholder="* is the default").props("dense").classes("w-44")
        address = ui.input("Address", placeholder="* is the default").props("dense").classes("w-44")
        key = ui.select(list(QUOTAS), value=next(iter(QUOTAS)), label="Quota").props("dense").classes("w-60")
        value = ui.input("Value").props("dense").classes("w-36")

        async def planning(cluster: Cluster) -> Plan:
            names = {"user": user, "client-id": client, "ip": address}
            entity = parse_entity({kind: str(each.value or "") for kind, each in names.items()})
            return await plan_quota(cluster, entity, str(key.value), str(value.value or ""))

        ui.button("Preview", on_click=lambda: table.carry_out(planning))


def _section(title: str) -> None:
    ui.label(title).classes("text-h6").props("role=heading aria-level=2")
