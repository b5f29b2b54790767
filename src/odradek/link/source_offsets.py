"""Requests for the log start offsets and high watermarks of a source."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from odradek.client.connection import RequestTimeoutError
from odradek.client.groups import list_offsets

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

Offsets = dict[tuple[str, int], int]
# A source may be far: a new connection, TLS, a login and the requests for offsets take ten round trips.
OFFSETS_TIMEOUT_MS = 6000


async def log_offsets(source: Cluster, partitions: Collection[tuple[str, int]], *timestamps: int) -> list[Offsets]:
    """For each timestamp (EARLIEST, LATEST) the offsets of partitions, by topic and partition.

    Raises:
        OdradekError: of the first partition that failed; RequestTimeoutError after OFFSETS_TIMEOUT_MS.
    """
    try:
        async with asyncio.timeout(OFFSETS_TIMEOUT_MS / 1000):
            return [await list_offsets(source, dict.fromkeys(partitions, timestamp)) for timestamp in timestamps]
    except TimeoutError:
        raise RequestTimeoutError("the source did not return the offsets of its logs in time") from None
