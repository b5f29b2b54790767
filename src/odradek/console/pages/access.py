"""Who may do what on a cluster, who may log in there, and how much clients may take: ACLs, users, quotas."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from odradek.client.acls import describe_acls
from odradek.client.cluster import Cluster
from odradek.client.quotas import list_quotas
from odradek.client.users import list_users
from odradek.console.clusters import Right
from odradek.console.pages.frame import Console, Page, open_page
from odradek.console.pages.tables import Column, PagedTable
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest


def register(console: Console) -> None:
    @ui.page("/c/{cluster}/access")
    async def access(request: Request, cluster: str) -> None:
        page = open_page(console, request, cluster, "Access and quotas")
        if page is not None and await page.opened():
            await _access(page)


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: str
    permission: str
    operation: str
    resource: str
    host: str


async def _ask_acls(cluster: Cluster) -> list[_Entry]:
    every = DescribeAclsRequest(
        resource_type_filter=AclResourceType.ANY,
        pattern_type_filter=PatternType.ANY,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    return [
        _Entry(
            each.principal,
            PermissionType(each.permission_type).name,
            AclOperation(each.operation).name,
            f"{AclResourceType(of.resource_type).name} {PatternType(of.pattern_type).name} {of.resource_name}",
            each.host,
        )
        for of in await describe_acls(cluster, every)
        for each in of.acls
    ]


async def _ask_users(cluster: Cluster) -> list[tuple[str, str]]:
    found = await list_users(cluster)
    return [(user, ", ".join(sorted(mechanisms))) for user, mechanisms in found.items()]


async def _ask_quotas(cluster: Cluster) -> list[tuple[str, str, float]]:
    return [
        (", ".join(f"{kind} {name or '(default)'}" for kind, name in entity.items()), key, value)
        for entity, values in await list_quotas(cluster, {})
        for key, value in values.items()
    ]


_ACLS: list[Column[_Entry]] = [
    Column("principal", "Principal", lambda row: row.principal),
    Column("permission", "Permission", lambda row: row.permission),
    Column("operation", "Operation", lambda row: row.operation),
    Column("resource", "Resource", lambda row: row.resource),
    Column("host", "Host", lambda row: row.host, wide=True),
]
_USERS: list[Column[tuple[str, str]]] = [
    Column("user", "User", lambda row: row[0]),
    Column("mechanisms", "Mechanisms", lambda row: row[1]),
]
_QUOTAS: list[Column[tuple[str, str, float]]] = [
    Column("entity", "Of", lambda row: row[0]),
    Column("key", "Quota", lambda row: row[1]),
    Column("value", "Value", lambda row: f"{row[2]:,.10g}", lambda row: row[2], right=True),
]


async def _access(page: Page) -> None:
    acls = await page.ask(Right.SEE, _ask_acls)
    users = await page.ask(Right.SEE, _ask_users)
    quotas = await page.ask(Right.SEE, _ask_quotas)
    _section("ACLs")
    PagedTable(page, _ACLS, lambda: acls or (), empty=_nothing(acls, "No ACL."))
    _section("Users that log in by SCRAM")
    PagedTable(page, _USERS, lambda: users or (), empty=_nothing(users, "No user."), searched=False)
    _section("Quotas")
    PagedTable(page, _QUOTAS, lambda: quotas or (), empty=_nothing(quotas, "No quota."), searched=False)


def _section(title: str) -> None:
    ui.label(title).classes("text-h6").props("role=heading aria-level=2")


def _nothing(found: object | None, text: str) -> str:
    return "It could not be asked." if found is None else text
