"""Members of a group that read nothing: the time of a rebalance is the broker's, and hardly theirs.

A hundred consumers of a real client in one process would measure that process. These are coroutines over one connection
each, with a heartbeat so short that a member learns of a rebalance almost at once.
"""

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.client.connection import Connection, connect
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealNetwork
from odradek.metadata.model import ResourceType
from odradek.protocol import codec
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

HEARTBEAT_S = 0.05
TIMEOUT_S = 60.0
SESSION_MS = 45_000


class Member(Protocol):
    """The measures of a rebalance."""

    generation: int
    owned: tuple[int, ...]

    async def live(self) -> None:
        """Join, and be a member until cancelled."""
        ...


class ClassicMember:
    """A member of the older protocol; the leader assigns each member an equal part."""

    def __init__(
        self, connection: Connection, group: str, topic: str, partitions: int, moved: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._group = group
        self._partitions = partitions
        self._moved = moved
        body = codec.encode(ConsumerProtocolSubscription(topics=[topic]), 0)
        self._metadata = struct.pack(">h", 0) + body
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()

    async def live(self) -> None:
        while True:
            await self._join()
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                request = HeartbeatRequest(
                    group_id=self._group, generation_id=self.generation, member_id=self.member_id
                )
                answer = await self._connection.request(request, HeartbeatResponse, timeout_s=TIMEOUT_S)
                if answer.error_code:
                    break

    async def _join(self) -> None:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=self._metadata)],
            )
            joined = await self._connection.request(request, JoinGroupResponse, timeout_s=TIMEOUT_S)
            if joined.member_id:
                self.member_id = joined.member_id
            if joined.error_code:
                assert joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS), joined
                continue
            sync = SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=self._shares(joined) if joined.leader == self.member_id else [],
            )
            synced = await self._connection.request(sync, SyncGroupResponse, timeout_s=TIMEOUT_S)
            if not synced.error_code:
                count = len(synced.assignment) // 4
                self.owned = struct.unpack(f">{count}i", synced.assignment)
                self.generation = joined.generation_id
                self._moved()
                return

    def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(each.member_id for each in joined.members)
        shares = []
        for number, member_id in enumerate(members):
            part = range(number, self._partitions, len(members))
            shares.append(
                SyncGroupRequestAssignment(member_id=member_id, assignment=struct.pack(f">{len(part)}i", *part))
            )
        return shares


class ConsumerMember:
    """A member of the newer protocol (KIP-848), which revokes and takes partitions as it is asked."""

    def __init__(
        self, connection: Connection, group: str, topic: str, partitions: int, moved: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._moved = moved
        self.member_id = str(uuid.uuid4())
        self.generation = 0
        self.owned: tuple[int, ...] = ()

    async def live(self) -> None:
        answer = await self._beat(subscribed_topic_names=[self._topic], topic_partitions=[])
        while True:
            if answer.member_epoch != self.generation:
                self.generation = answer.member_epoch
                self._moved()
            if answer.assignment is None:
                await asyncio.sleep(HEARTBEAT_S)
                answer = await self._beat()
                continue
            given = answer.assignment.topic_partitions
            self.owned = tuple(number for each in given for number in each.partitions)
            self._moved()
            held = [TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in given]
            answer = await self._beat(topic_partitions=held)

    async def _beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=SESSION_MS if "subscribed_topic_names" in changes else -1,
            **changes,
        )
        answer = await self._connection.request(request, ConsumerGroupHeartbeatResponse, timeout_s=TIMEOUT_S)
        assert not answer.error_code, answer
        return answer


KINDS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {"classic": ClassicMember, "consumer": ConsumerMember}


async def _rebalance(
    port: int, group: str, topic: str, partitions: int, count: int, protocol: str, *, at_once: bool
) -> float:
    connections: list[Connection] = []
    tasks: list[asyncio.Task[None]] = []
    changed = asyncio.Event()

    async def add() -> Member:
        connection = await connect(RealNetwork(), "127.0.0.1", port, client_id="bench", timeout_s=TIMEOUT_S)
        connections.append(connection)
        return KINDS[protocol](connection, group, topic, partitions, changed.set)

    async def settled(members: Sequence[Member]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_settled(members, partitions):
                changed.clear()
                waits = [asyncio.ensure_future(changed.wait()), *tasks]
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                waits[0].cancel()
                for task in done:
                    task.result()  # a member that failed ends the measurement

    try:
        members = [await add() for _ in range(count)]
        await _find(connections[0], group)
        if at_once:
            await _assign_at_once(connections[0], group)
        tasks += [asyncio.ensure_future(member.live()) for member in members[:-1]]
        await settled(members[:-1])
        # Between two heartbeats of the others: at the same time as one it would be chance whose comes first.
        await asyncio.sleep(HEARTBEAT_S / 2)
        began = time.perf_counter()
        tasks.append(asyncio.ensure_future(members[-1].live()))
        await settled(members)
        return time.perf_counter() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.close()


async def _find(connection: Connection, group: str) -> None:
    """Wait until the group's coordinator is there, and answers."""
    asked = FindCoordinatorRequest(coordinator_keys=[group])
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="unknown")
    while True:
        found = await connection.request(asked, FindCoordinatorResponse, timeout_s=TIMEOUT_S)
        if not found.coordinators[0].error_code:
            answer = await connection.request(beat, HeartbeatResponse, timeout_s=TIMEOUT_S)
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                return
        await asyncio.sleep(0.05)


async def _assign_at_once(connection: Connection, group: str) -> None:
    """Set the group's assignment interval to 0, so that each change gets its own assignment (KIP-1263)."""
    config = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value="0")
    resource = AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await connection.request(request, IncrementalAlterConfigsResponse, timeout_s=TIMEOUT_S)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE], answer


def is_settled(members: Sequence[Member], partitions: int) -> bool:
    """Whether all are of one generation, and every partition is somebody's, in equal parts."""
    if len({member.generation for member in members}) != 1:
        return False
    sizes = [len(member.owned) for member in members]
    owned = sorted(number for member in members for number in member.owned)
    return owned == list(range(partitions)) and max(sizes) - min(sizes) <= 1


def rebalance_s(
    port: int, group: str, topic: str, partitions: int, count: int, protocol: str, *, at_once: bool = False
) -> float:
    """Seconds from the first word of the last of `count` members until all of them have an equal part.

    Args:
        at_once: the group is one whose assignments have no interval between them.
    """
    return asyncio.run(_rebalance(port, group, topic, partitions, count, protocol, at_once=at_once))
