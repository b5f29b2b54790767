"""Detects that a group member has no partitions because the group has no coordinator.

The C client looks for its coordinator for ever and reports nothing, so that a group that cannot be served looks like a
topic without records.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.cli.connect import Target, administer
from odradek.cli.errors import CliError
from odradek.common.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

# A group is joined within three seconds by default (group.initial.rebalance.delay.ms).
FIRST_LOOK_S = 4.0
PAUSE_S = 10.0
# A coordinator may change places, or its topic be on its way.
PATIENCE_MS = 4_000
PATIENCE_AT_END_MS = 1_000


class CoordinatorWatch:
    """Looks up the coordinator of a group while its member has no partitions."""

    def __init__(self, where: Target, group: str, consumer: Any) -> None:
        self._where = where
        self._group = group
        self._consumer = consumer
        self._next_s = time.monotonic() + FIRST_LOOK_S
        self._joined = False

    def check(self, *, at_end: bool = False) -> None:
        """Look up the coordinator if it is time, or `at_end`, when nothing else reports the reason.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, with what the broker says of it.
        """
        self._joined = self._joined or bool(self._consumer.assignment())
        if self._joined or not (at_end or time.monotonic() >= self._next_s):
            return
        try:
            administer(_within(self._where, PATIENCE_AT_END_MS if at_end else PATIENCE_MS), self._find_coordinator)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
        except (CliError, OSError):
            pass  # the client itself reports that there is no connection
        self._next_s = time.monotonic() + PAUSE_S

    async def _find_coordinator(self, cluster: Cluster) -> int:
        return await cluster.coordinator(self._group)


def _within(where: Target, patience_ms: int) -> Target:
    return replace(where, properties=where.properties | {"default.api.timeout.ms": str(patience_ms)})
