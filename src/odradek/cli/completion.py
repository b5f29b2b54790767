"""Shell completion of topic and group names. If the cluster does not respond, there are none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

# A person waits with a finger on the key.
TIMEOUT_MS = 1000


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics with this prefix."""

    async def work(cluster: Cluster) -> list[str]:
        return [topic.name or "" for topic in (await cluster.metadata()).topics]

    return _beginning(ctx, incomplete, work)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups with this prefix."""

    async def work(cluster: Cluster) -> list[str]:
        from odradek.client.groups import list_groups

        return [group.group_id for group in await list_groups(cluster)]

    return _beginning(ctx, incomplete, work)


def _beginning(ctx: typer.Context, incomplete: str, work: Callable[[Cluster], Awaitable[list[str]]]) -> list[str]:
    from odradek.cli.connect import DEFAULT_BOOTSTRAP, Target, administer, target
    from odradek.common.errors import OdradekError

    given: dict[str, Any] = ctx.params
    config = given.get("command_config")
    try:
        where = target(given.get("bootstrap_server") or DEFAULT_BOOTSTRAP, Path(config) if config else None)
        hurried = Target(where.bootstrap, {**where.properties, "default.api.timeout.ms": str(TIMEOUT_MS)})
        names = administer(hurried, work)
    except (OdradekError, OSError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))
