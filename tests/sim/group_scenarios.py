"""Directed scenarios of groups, for what seeds seldom bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from odradek.client.connection import Connection
from odradek.common.errors import ErrorCode, OdradekError, StorageError
from odradek.common.ports import make_dirs_durably
from odradek.common.steps import all_steps
from odradek.coordinator.group.records import GROUP_RECORDS, CoordinatorRecord, OffsetRecord
from odradek.coordinator.log import PartitionMachineLog
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import open_log
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from tests.sim import faults
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.clock import SimClock
from tests.sim.disk import DiskFaults, SimDisk
from tests.sim.loop import SimLoop
from tests.sim.one_node import TOPIC, Admin
from tests.sim.readers import OFFSET_COMMIT_VERSION
from tests.sim.world import World

GROUP = "seats"
REBALANCE_MS = 1000


class Seat:
    """A static member that does one thing at a time, and only on request."""

    def __init__(self, client: Client, instance_id: str) -> None:
        self.client = client
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    async def _send_to_coordinator(self, request: Any, response: Any, version: int | None = None) -> Any:
        while True:
            try:
                node_id = await self.client.cluster.coordinator(GROUP)
                connection: Connection = await self.client.cluster.connection_to(node_id)
                return await connection.request(request, response, timeout_s=10, version=version)
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def join(self) -> None:
        """Be in the next generation, and give each of its members its own id for an assignment."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="seats",
            protocols=[JoinGroupRequestProtocol(name="any", metadata=b"")],
        )
        joined = await self._send_to_coordinator(request, JoinGroupResponse)
        assert joined.error_code == 0, joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        given = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=each.member_id.encode())
            for each in joined.members
        ]
        assert await self.sync(given) == (0, self.member_id.encode())

    async def sync(self, given: list[SyncGroupRequestAssignment]) -> tuple[int, bytes]:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="seats",
            protocol_name="any",
            assignments=given,
        )
        answer = await self._send_to_coordinator(request, SyncGroupResponse)
        return answer.error_code, bytes(answer.assignment)

    async def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int((await self._send_to_coordinator(request, HeartbeatResponse)).error_code)

    async def commit(self) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        answer = await self._send_to_coordinator(request, OffsetCommitResponse, OFFSET_COMMIT_VERSION)
        return int(answer.topics[0].partitions[0].error_code)


def a_member_of_an_earlier_generation_is_refused() -> None:
    """A static member stays in the group while others go on; its next requests have an earlier generation."""
    world = World(1, faults.none())
    world.add_machine("node-1", 1).start()

    async def scenario() -> None:
        recorder = Recorder()
        await Admin(world, "admin", 9, recorder).create_surely(TOPIC, 1, {})
        late, other = (
            Seat(Client(world, name, number, recorder), name) for number, name in enumerate(("late", "other"))
        )
        await late.join()
        await other.join()
        assert other.generation > late.generation
        assert await other.heartbeat() == 0
        refused = [await late.heartbeat(), await late.commit(), (await late.sync([]))[0]]
        assert refused == [ErrorCode.ILLEGAL_GENERATION] * 3, refused

    with world:
        world.loop.run_world(scenario(), limit_s=60)


def coordinator_log(
    disk: SimDisk, on_storage_error: Callable[[StorageError], None]
) -> PartitionMachineLog[CoordinatorRecord]:
    """The log of a coordinator that leads its partition."""
    home = Path("/data/__consumer_offsets-0")
    make_dirs_durably(disk, home)
    log = open_log(FileCache(disk), home, ("__consumer_offsets", 0), LogConfig(), now_ms=0, recovery_point=0)
    partition = Partition("__consumer_offsets", 0, UUID(int=1), log, broker_id=1)
    apply_image(partition, PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0))
    clock = SimClock(SimLoop(Random(0)))
    return PartitionMachineLog(
        partition, 0, clock, GROUP_RECORDS, max_batch_bytes=10_000, on_storage_error=on_storage_error
    )


def a_coordinator_loads_all_though_bits_flip_on_the_way() -> None:
    """It asks again: one that gave up would stay the leader and refuse its groups for as long as it leads."""
    disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
    machine_log = coordinator_log(disk, lambda error: None)
    for number in range(30):
        key = OffsetCommitKey(group="g", topic="t", partition=number)
        machine_log.append(
            [all_steps(machine_log.prepare([OffsetRecord(key, OffsetCommitValue(offset=number))], atomic=True))]
        )
    disk.faults = DiskFaults(flipped_bit=0.5, flips_records=True)
    found: list[tuple[int, CoordinatorRecord]] = []

    async def load() -> None:
        async for records in machine_log.read_all():
            found.extend(records)

    loop = SimLoop(Random(1))
    with loop:
        loop.run_world(load(), limit_s=60)
    loaded = [(offset, record.key.partition) for offset, record in found if isinstance(record, OffsetRecord)]
    assert loaded == [(number, number) for number in range(30)]
    assert disk.injected["flipped bit"]


def a_coordinator_that_cannot_write_gives_its_disk_up() -> None:
    """One that stayed the leader would refuse its groups for ever, and no other broker would take them."""
    disk = SimDisk(Random(0), DiskFaults(), lambda: 0)
    failed: list[StorageError] = []
    machine_log = coordinator_log(disk, failed.append)
    batch = build_batch([Record(b"key", b"value", timestamp_ms=0)])
    machine_log.append([[batch]])
    disk.faults = DiskFaults(write_error=1.0)
    try:
        machine_log.append([[batch]])
    except StorageError as error:
        assert failed == [error]
    else:
        raise AssertionError("a write that failed was not reported")
