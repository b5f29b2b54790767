"""The groups of this broker, as links bring their offsets to those of other clusters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.client.cluster import check
from odradek.client.groups import CommittedOffset
from odradek.common.errors import ApiError
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup

if TYPE_CHECKING:
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.link.offsets import Offsets, PartitionKey
    from odradek.server.background.group_lag import GroupLagJob

# The newest that names topics, as the coordinator keeps them.
COMMIT_VERSION = 9


class LinkGroups:
    """Implements `GroupsHere` of `link.offsets`."""

    def __init__(self, coordinator: GroupCoordinator, lags: GroupLagJob, *, broker_id: int, listener_name: str) -> None:
        """`lags` knows where partitions end that are led elsewhere."""
        self._coordinator = coordinator
        self._lags = lags
        self._broker_id = broker_id
        self._listener_name = listener_name

    async def coordinates(self, group_id: str) -> bool:
        if self._coordinator.partition_for(group_id) is None:
            with contextlib.suppress(ApiError):
                await self._coordinator.find_coordinator(group_id, self._listener_name)
        return self._coordinator.leader_of(group_id) == self._broker_id

    async def committed(self, group_id: str) -> Offsets:
        requested = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        answer = await self._coordinator.offset_fetch(requested, require_stable=False)
        check(answer.error_code, f"group {group_id}")
        return {
            (topic.name, each.partition_index): CommittedOffset(
                each.committed_offset, each.committed_leader_epoch, each.metadata or ""
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def commit(self, group_id: str, offsets: Offsets) -> None:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, number), each in sorted(offsets.items()):
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
            )
        request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
        answer = await self._coordinator.offset_commit(request, COMMIT_VERSION)
        for found in answer.topics:
            for stored in found.partitions:
                check(stored.error_code, f"group {group_id}, {found.name}-{stored.partition_index}")

    async def ends(self, keys: Iterable[PartitionKey]) -> Mapping[PartitionKey, int]:
        return await self._lags.ends(keys)
