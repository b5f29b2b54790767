"""A partition as the log of a state machine: its end offset, its committed offset, and its leadership."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import File
from odradek.common.real_io import RealClock, RealDisk
from odradek.common.steps import all_steps
from odradek.coordinator.group.records import GROUP_RECORDS, CoordinatorRecord, OffsetRecord
from odradek.coordinator.log import PartitionMachineLog
from odradek.log.segment import Segment
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
        return self.log.append([all_steps(self.log.prepare(records(count), atomic=True))])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.home.disk.close()


def test_records_on_every_replica_are_committed(machine: Machine) -> None:
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
    """Records were deleted up to the middle of a batch; the others are loaded."""
    machine.append(3)
    machine.append(2)
    assert await loaded(machine) == [0, 1, 2, 3, 4]
    machine.home.fetched(FOLLOWER, 5)
    machine.home.log.advance_log_start(1)
    assert await loaded(machine) == [1, 2, 3, 4]


class ErrorDisk(RealDisk):
    """Opens no file."""

    def __init__(self, code: int) -> None:
        super().__init__(workers=1)
        self.code = code

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        raise OSError(self.code, os.strerror(self.code))


@contextmanager
def unreadable(machine: Machine, code: int) -> Iterator[None]:
    log = machine.home.log
    files = log.partition_dir.files
    files.invalidate_below(log.directory)
    disk, files.disk = files.disk, ErrorDisk(code)
    yield
    files.disk.close()
    files.disk = disk


@contextmanager
def damaged(machine: Machine) -> Iterator[None]:
    path = machine.home.log.segments.active.path
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    yield
    path.write_bytes(whole)


async def test_a_load_waits_where_no_file_can_be_opened(machine: Machine) -> None:
    machine.append(2)
    reading = machine.log.read_all()
    with unreadable(machine, errno.EMFILE):
        assert [await anext(reading) for _ in range(3)] == [[], [], []]
    assert [offset for offset, _ in await anext(reading)] == [0, 1]
    assert [part async for part in reading] == []
    assert machine.failed == []


async def test_a_load_from_a_disk_that_fails_says_so(machine: Machine) -> None:
    machine.append(2)
    with unreadable(machine, errno.EIO), pytest.raises(StorageError):
        await anext(machine.log.read_all())
    (error,) = machine.failed
    assert error.log_dir == machine.home.log.log_dir


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_load_that_fails_names_its_directory_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    machine.append(2)
    log_dir = machine.home.log.log_dir
    error = StorageError(log_dir, "gone") if is_known else OSError(errno.EIO, "gone")

    def read(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(machine.home.log), "read", read)
    with pytest.raises(StorageError) as caught:
        await anext(machine.log.read_all())
    assert machine.failed == [caught.value]
    assert str(caught.value).count(str(log_dir)) == 1


async def test_a_load_ends_where_the_log_has_nothing_more(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction left no record in front of its end; and any refusal but that of damage ends it."""
    machine.append(2)
    log_class, read = type(machine.home.log), type(machine.home.log).read

    def nothing(log: Any, offset: int, **limits: Any) -> Any:
        found = read(log, offset, **limits)
        found.chunks.clear()
        return found

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)

    monkeypatch.setattr(log_class, "read", nothing)
    assert [part async for part in machine.log.read_all()] == []
    monkeypatch.setattr(log_class, "read", refuse)
    with pytest.raises(ApiError) as caught:
        await anext(machine.log.read_all())
    assert (caught.value.code, machine.failed) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


async def test_a_load_reads_a_damaged_batch_again_while_it_leads(machine: Machine) -> None:
    machine.append(2)
    reading = machine.log.read_all()
    with damaged(machine):
        assert [await anext(reading) for _ in range(2)] == [[], []]
    assert [offset for offset, _ in await anext(reading)] == [0, 1]
    reading = machine.log.read_all()
    with damaged(machine):
        assert await anext(reading) == []
        machine.home.change(leader_epoch=1)
        with pytest.raises(ApiError) as caught:
            await anext(reading)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_load_waits_for_the_repair_of_what_readers_may_not_have(machine: Machine) -> None:
    """A start has not looked at it: the log refuses the batch itself, and has it repaired."""
    machine.append(2)
    log, partition = machine.home.log, machine.home.partition
    log.segments.active.verification.tail_start = log.size_bytes
    asked: list[int] = []

    def on_damage(segment: Segment, position: int) -> bool:
        asked.append(position)
        return True

    log.damage.on_damage = on_damage
    reading = machine.log.read_all()
    with damaged(machine):
        repair = asyncio.get_running_loop().create_future()
        partition.repair = repair
        waiting = asyncio.ensure_future(anext(reading))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done() and asked == [0]
    partition.repair = None
    repair.set_result(None)
    assert await waiting == []
    assert [offset for offset, _ in await anext(reading)] == [0, 1]


async def test_a_load_of_a_partition_that_went_elsewhere_ends(machine: Machine) -> None:
    machine.append(2)
    machine.home.log.detach()
    with pytest.raises(ApiError) as caught:
        await anext(machine.log.read_all())
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_commit_is_waited_for_until_the_leadership_ends(machine: Machine) -> None:
    end = machine.append(2)
    waiting = [asyncio.ensure_future(machine.log.wait_committed(offset)) for offset in (1, end)]
    await asyncio.sleep(0)
    machine.home.fetched(FOLLOWER, 1)
    await waiting[0]
    assert not waiting[1].done()
    machine.home.change(leader=FOLLOWER, leader_epoch=1)
    with pytest.raises(ApiError) as caught:
        await waiting[1]
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_append_to_a_disk_that_fails_says_so(machine: Machine) -> None:
    machine.append(1)
    with unreadable(machine, errno.EIO), pytest.raises(StorageError):
        machine.append(1)
    assert len(machine.failed) == 1 and machine.log.end_offset == 1
