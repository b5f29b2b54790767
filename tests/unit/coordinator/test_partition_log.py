"""A partition as the log beneath a machine: where it ends, what of it is committed, under which leadership."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock
from odradek.coordinator.group.records import GROUP_RECORDS, CoordinatorRecord, OffsetRecord
from odradek.coordinator.log import PartitionMachineLog
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.unit.replica.test_partition import ME, Home

FOLLOWER = 2


def records(count: int) -> list[CoordinatorRecord]:
    return [
        OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=number), OffsetCommitValue(offset=number))
        for number in range(count)
    ]


class Machine:
    """The log of a machine over a partition that broker 1 leads and broker 2 follows."""

    def __init__(self, directory: Path) -> None:
        self.home = Home(directory, (ME, FOLLOWER))
        self.failed: list[StorageError] = []
        self.log = PartitionMachineLog[CoordinatorRecord](
            self.home.partition,
            0,
            RealClock(),
            GROUP_RECORDS,
            max_batch_bytes=10_000,
            on_storage_error=self.failed.append,
        )

    def append(self, count: int) -> int:
        return self.log.append([self.log.prepare(records(count), atomic=True)])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.home.disk.close()


def test_what_every_replica_has_is_committed(machine: Machine) -> None:
    assert (machine.log.end_offset, machine.log.committed_offset) == (0, 0)
    assert [machine.append(3), machine.append(2)] == [3, 5]
    assert (machine.log.end_offset, machine.log.committed_offset) == (5, 0)
    machine.home.fetched(FOLLOWER, 3)
    assert (machine.log.end_offset, machine.log.committed_offset) == (5, 3)
    machine.home.fetched(FOLLOWER, 5)
    assert (machine.log.end_offset, machine.log.committed_offset) == (5, 5)


def test_another_leadership_is_not_written_under(machine: Machine) -> None:
    machine.append(1)
    machine.home.change(leader_epoch=1)
    with pytest.raises(ApiError) as caught:
        machine.append(1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (machine.log.end_offset, machine.failed) == (1, [])


async def loaded(machine: Machine) -> list[int]:
    return [offset for records in [part async for part in machine.log.read_all()] for offset, _ in records]


async def test_a_load_begins_with_the_first_record_that_is_kept(machine: Machine) -> None:
    """Records were deleted up to the middle of a batch; what is not deleted is state."""
    machine.append(3)
    machine.append(2)
    assert await loaded(machine) == [0, 1, 2, 3, 4]
    machine.home.fetched(FOLLOWER, 5)
    machine.home.log.advance_log_start(1)
    assert await loaded(machine) == [1, 2, 3, 4]
