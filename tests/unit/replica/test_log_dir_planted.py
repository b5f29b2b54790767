"""Bugs planted into moves between log directories that seeds of the simulator catch late: a scenario for each.

Each scenario holds, and fails with its bug.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError
from odradek.common.ports import make_dirs_durably
from odradek.log.manager import LogManager
from odradek.log.truncation import truncate_to
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.replica.log_dir_move import LogDirMove, Stage
from odradek.replica.manager import ReplicaManager
from tests.sim.disk import DiskFaults
from tests.sim.planted_directories import CAUGHT_BY_SEED, DIRECTORY_BUGS
from tests.support.disks.crashing import CrashingDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.planted.log_bugs import IN_MOVES
from tests.unit.replica.test_log_dir_moves import (
    CONFIG,
    IDS,
    ME,
    ONE,
    TOPIC_ID,
    TWO,
    Broker,
    FixedClock,
    append,
    copy_all,
    end_of_process,
    make,
    numbers,
)

BROKER_EPOCH = 7


class BusyDisk(CrashingDisk):
    """A disk that calls `meanwhile` while it works off the loop."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed), DiskFaults(sync_ms=(0.0, 0.0)), lambda: NOW_MS)
        self.meanwhile: Callable[[], None] = lambda: None

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        done = await super().run_blocking(work)
        self.meanwhile()
        return done


async def what_is_written_while_a_copy_is_finished_comes_along() -> None:
    """A record is appended whenever the end of a move waits for the disk, so the copy never has all by itself."""
    disk = BusyDisk(1)
    for path in (ONE, TWO):
        make_dirs_durably(disk, path)
    broker = Broker(disk, {}, Random(1))
    partition = broker.partition
    target = TWO if partition.log.log_dir == ONE else ONE
    written = 0

    def write() -> None:
        nonlocal written
        move = broker.moves.get(("t", 0))
        if written == 0 or (move is not None and move.stage is Stage.REPORTED):
            append(partition.log, b"%05d" % written)
            written += 1

    write()
    disk.meanwhile = write
    broker.moves.begin(partition, target)
    await broker.run_moves()
    assert partition.log.log_dir == target
    found = numbers(partition.log)
    await end_of_process(disk)
    assert found == list(range(written)) and written > 3


async def a_copy_knows_who_wrote_it() -> None:
    logs, _, partition = make(Random(1))
    log = partition.log
    for sequence in range(2):
        append(log, b"%05d" % sequence, producer_id=9, sequence=sequence)
    move = LogDirMove(partition, logs.futures.create(log, TOPIC_ID, TWO))
    copy_all(move)
    future = logs.futures.replace(("t", 0))
    again = batch(b"00000", producer_id=9, sequence=0)
    info = future.append_as_leader([again], [header_of(again)], leader_epoch=0, now_ms=NOW_MS)
    assert info.duplicate and info.base_offset == 0


async def a_copy_of_a_log_that_was_cut_and_grew_again_is_cut_too() -> None:
    """By its length alone the copy could be a prefix of the log."""
    logs, _, partition = make(Random(1))
    log = partition.log
    for number in range(6):
        append(log, b"%05d" % number)
    move = LogDirMove(partition, logs.futures.create(log, TOPIC_ID, TWO))
    copy_all(move)
    truncate_to(log, 3)
    for number in range(100, 106):
        append(log, b"%05d" % number, epoch=2)
    copy_all(move)
    assert numbers(move.future) == numbers(log) == [0, 1, 2, *range(100, 106)]


async def a_copy_that_is_not_the_log_does_not_become_it() -> None:
    """The log's disk comes back empty; the controller knows the replica there, and not where its copy lies."""
    logs, disk, partition = make(Random(1))
    for number in range(6):
        append(partition.log, b"%05d" % number)
    move = LogDirMove(partition, logs.futures.create(partition.log, TOPIC_ID, TWO))
    token, chunks = move.begin_read(200, NOW_MS)
    move.append(token, b"".join(chunk.read() for chunk in chunks), NOW_MS)
    assert 0 < move.future.log_end_offset < 6
    disk.process_died()
    disk.restore({path: data for path, data in disk.snapshot().items() if ONE not in path.parents})
    make_dirs_durably(disk, ONE)
    assert started(disk, lambda topic, number: IDS[ONE]).get(("t", 0)) is None


async def a_start_with_one_disk_of_two_is_no_clean_one() -> None:
    """A replica without the data of the other disk must not be taken for one that has all (KIP-966)."""
    for lost in ((), (ONE,), (TWO,)):
        logs, disk, _ = make(Random(1))
        logs.close(broker_epoch=BROKER_EPOCH)
        disk.process_died()
        kept = {path: data for path, data in disk.snapshot().items() if not any(each in path.parents for each in lost)}
        disk.restore(kept)
        for path in lost:
            make_dirs_durably(disk, path)
        known = started(disk, lambda topic, number: None).previous_broker_epoch
        assert known == (-1 if lost else BROKER_EPOCH)


async def a_replica_of_a_failed_directory_is_offline() -> None:
    """An empty log in the other directory would give acknowledged offsets once more."""
    logs, _, _ = make(Random(1))
    for directory in logs.directories:
        directory.directory_id = IDS[directory.path]
    logs.take_offline(TWO, "dead")
    publisher = MetadataPublisher()
    replicas = ReplicaManager(ME, logs, fetch_max_bytes=2**20)
    publisher.subscribe(replicas.on_metadata)
    records = [
        TopicRecord(name="u", topic_id=UUID(int=6)),
        PartitionRecord(
            partition_id=0, topic_id=UUID(int=6), replicas=[ME], isr=[ME], leader=ME, directories=[IDS[TWO]]
        ),
    ]
    publisher.committed(list(enumerate(records)), 1)
    assert logs.get(("u", 0)) is None


def started(disk: CrashingDisk, assigned: Callable[[str, int], UUID | None]) -> LogManager:
    """The logs of the next process."""
    logs = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, Random(1))
    for directory in logs.directories:
        directory.directory_id = IDS[directory.path]
    logs.lock_dirs()
    logs.load(assigned=assigned)
    return logs


CAUGHT: dict[str, Callable[[], Awaitable[None]]] = {
    "a copy takes the log's place before it has all": what_is_written_while_a_copy_is_finished_comes_along,
    "the copy knows no producers": a_copy_knows_who_wrote_it,
    "a move of long ago goes on after a cut": a_copy_of_a_log_that_was_cut_and_grew_again_is_cut_too,
    "every copy that a start finds is the log": a_copy_that_is_not_the_log_does_not_become_it,
    "replicas of a lost directory are recreated": a_replica_of_a_failed_directory_is_offline,
    "one good directory speaks for all": a_start_with_one_disk_of_two_is_no_clean_one,
}


@pytest.mark.parametrize("name", CAUGHT)
async def test_a_scenario_catches_what_seeds_may_not(name: str) -> None:
    await CAUGHT[name]()
    bug = next(bug for bug in DIRECTORY_BUGS if bug.name == name)
    with bug.planted():
        try:
            await CAUGHT[name]()
        except (AssertionError, ApiError):
            return
    pytest.fail(f"{name} is not caught")


def test_every_bug_of_directories_has_what_catches_it() -> None:
    caught = {*CAUGHT, *CAUGHT_BY_SEED, *(bug.name for bug in IN_MOVES)}
    assert caught == {bug.name for bug in DIRECTORY_BUGS}
