"""Moves between log directories: a copy is what its log is, cut where the log was cut, and the process may die, or the
machine go dark, before any change that a move makes to the disk."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import make_dirs_durably
from odradek.log import flush_state
from odradek.log.config import LogConfig
from odradek.log.files import make_durable
from odradek.log.future import rename_to
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.metadata.model import PartitionImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.record.control import transaction_marker
from odradek.record.reader import read_batches, read_records
from odradek.replica.leadership import apply_image
from odradek.replica.log_dir_move import TRANSITIONS, LogDirMove, Stage
from odradek.replica.manager import ReplicaCallbacks, ReplicaManager
from odradek.replica.partition import Partition
from tests.sim.disk import DiskFaults
from tests.support.disks.crashing import Crash, CrashingDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.models.transitions import check_every_pair

ME = 1
ONE, TWO = Path("/one"), Path("/two")
IDS = {ONE: UUID(int=101), TWO: UUID(int=102)}
TOPIC_ID = UUID(int=5)
CONFIG = LogConfig(flush_messages=1, segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 5000


class Broker:
    """One life of a process over a disk; the controller, which outlives it, is a dictionary."""

    def __init__(self, disk: CrashingDisk, controller: dict[str, UUID], random: Random) -> None:
        self.logs = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, random)
        for directory in self.logs.directories:
            directory.directory_id = IDS[directory.path]
        self.logs.lock_dirs()
        self.logs.load(assigned=lambda topic, number: controller.get(f"{topic}-{number}"))

        def report(partition: Partition, log_dir: Path, reported: Callable[[], None]) -> None:
            controller[partition.name] = IDS[log_dir]
            if random.random() < 0.5:
                reported()
            else:
                asyncio.get_running_loop().call_soon(reported)

        def ended(partition: Partition) -> None:
            controller[partition.name] = IDS[partition.log.log_dir]

        callbacks = ReplicaCallbacks(report_move=report, move_ended=ended)
        self.replicas = ReplicaManager(ME, self.logs, fetch_max_bytes=2**20, callbacks=callbacks)
        self.moves = self.replicas.moves
        self.publisher = MetadataPublisher()
        self.publisher.subscribe(self.replicas.on_metadata)
        placed = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[ME], isr=[ME], leader=ME)
        records = [TopicRecord(name="t", topic_id=TOPIC_ID), placed]
        self.publisher.committed(list(enumerate(records, 1)), 1)

    @property
    def partition(self) -> Partition:
        return self.replicas.find("t", 0, self.publisher.image)

    async def run_moves(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run the loop until no move is under way. Raises Crash."""
        while (task := self.moves._task) is not None:
            meanwhile()
            await asyncio.sleep(0)
            if task.done():
                task.result()
                return


class Writer:
    """Appends records with rising numbers, and knows which of them are durable."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.appended = 0
        self.durable = 0

    def write(self, partition: Partition) -> None:
        """Append some batches; each asks for a flush."""
        for _ in range(self._random.choice([0, 0, 1, 2])):
            values = [b"%05d" % (self.appended + i) + bytes(40) for i in range(self._random.randint(1, 3))]
            data = bytearray(batch(*values))
            partition.append_as_leader([data], [header_of(bytes(data))], required_acks=-1, now_ms=NOW_MS)
            self.appended += len(values)
            waits = partition.wait_durable(partition.log.log_end_offset)
            if waits is not None:
                waits.cancel()  # the waits are not the subject here
        self.durable = max(self.durable, partition.log.recovery_point)


def numbers(log: Log) -> list[int]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(chunk.read() for chunk in log.read(offset, max_bytes=1 << 20).chunks)
        for position, header in read_batches(data):
            records = read_records(data[position : position + header.size_bytes], header)
            found += [int((record.value or b"-1")[:5]) for record in records if not header.is_control]
            offset = header.last_offset + 1
    return found


async def end_of_process(disk: CrashingDisk) -> None:
    """End the process: cancel all tasks, and let the disk refuse further changes."""
    disk.dies_before = 0
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    disk.dies_before = None


async def crash_at(seed: int, change: int, *, power: bool) -> bool:
    """Move a log that is written, dying before that change, and start again; returns whether it died."""
    random = Random(seed * 1000 + change)
    disk = CrashingDisk(Random(seed), DiskFaults(sync_ms=(0.0, 0.0)), lambda: NOW_MS)
    controller: dict[str, UUID] = {}
    for path in (ONE, TWO):
        make_dirs_durably(disk, path)
    broker, writer = Broker(disk, controller, random), Writer(random)
    for _ in range(10):
        writer.write(broker.partition)
        await asyncio.sleep(0)
    await broker.replicas.flush(broker.partition)
    broker.logs.checkpoint_work()()
    target = TWO if broker.partition.log.log_dir == ONE else ONE
    disk.changes, disk.dies_before = 0, change
    try:
        broker.moves.begin(broker.partition, target)
        await broker.run_moves(lambda: writer.write(broker.partition))
        broker.logs.removal.begin_removals()()
    except Crash:
        pass
    died = disk.changes >= change  # be it in the move, or in a flush beside it
    await end_of_process(disk)
    disk.lose_power() if power else disk.process_died()
    for life in range(2):
        broker = Broker(disk, controller, random)
        found = numbers(broker.partition.log)
        assert found == list(range(len(found))), "in order, once"
        assert len(found) >= (writer.durable if power else writer.appended), f"lost in life {life}"
        if died and life == 0:
            broker.moves.begin(broker.partition, target)
            await broker.run_moves()
            assert numbers(broker.partition.log) == found
            assert broker.partition.log.log_dir == target
            await broker.replicas.flush(broker.partition)
            writer.appended = writer.durable = len(found)
        # A loss of power may bring back what was removed before it.
        broker.logs.removal.begin_removals()()
        await end_of_process(disk)
        disk.process_died()
    names = [name for path in (ONE, TWO) for name in disk.list_dir(path) if name.startswith("t-")]
    assert names == ["t-0"], "nothing is left of it"
    return died


@pytest.mark.parametrize("power", [False, True], ids=["killed", "dark"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_move_may_die_before_any_of_its_changes(seed: int, power: bool) -> None:
    change = 1 + seed
    while await crash_at(seed, change, power=power):
        change += 4
    assert change > 12, "there was something to die in"


def make(random: Random) -> tuple[LogManager, CrashingDisk, Partition]:
    disk = CrashingDisk(random, DiskFaults(), lambda: NOW_MS)
    logs = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, random)
    logs.lock_dirs()
    logs.load()
    log = logs.create("t", 0, TOPIC_ID, {}, log_dir=ONE)
    partition = Partition("t", 0, TOPIC_ID, log, broker_id=ME)
    apply_image(partition, PartitionImage(replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=0, partition_epoch=0))
    return logs, disk, partition


def append(log: Log, *values: bytes, epoch: int = 0, **fields: Any) -> None:
    data = batch(*values, **fields)
    log.append_as_leader([data], [header_of(data)], leader_epoch=epoch, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)


def copy_all(move: LogDirMove) -> None:
    while True:
        token, chunks = move.begin_read(300, NOW_MS)
        if not chunks:
            return
        move.append(token, b"".join(chunk.read() for chunk in chunks), NOW_MS)


@pytest.mark.parametrize("seed", range(30))
def test_a_copy_is_what_the_log_is_however_it_was_cut(seed: int) -> None:
    compare_cut_log_and_copy(seed)


def compare_cut_log_and_copy(seed: int) -> None:
    """A log that elections cut while it is copied, and its copy in the end."""
    random = Random(seed)
    logs, _, partition = make(random)
    log = partition.log
    move = LogDirMove(partition, logs.futures.create(log, TOPIC_ID, TWO))
    epoch, pending = 0, None
    for step in range(60):
        kind = random.random()
        if kind < 0.5:
            append(log, b"%05d" % step + bytes(30), epoch=epoch)
        elif kind < 0.6 and log.log_end_offset > log.log_start_offset:
            # This replica lost an election: the records that it had alone are truncated, under another leader's epoch.
            truncate_to(log, random.randint(log.log_start_offset, log.log_end_offset))
            epoch += random.randint(1, 2)
            if random.random() < 0.7:
                append(log, b"%05d" % (1000 + step), epoch=epoch)
        elif kind < 0.65:
            log.advance_log_start(random.randint(log.log_start_offset, log.high_watermark))
        elif kind < 0.7:
            back = random.random() < 0.5  # to what another leader's history shares
            epoch += back
            offset = max(0, log.log_start_offset - 2) if back else log.log_end_offset + random.choice([0, 5])
            truncate_fully_and_start_at(log, offset)
        elif kind < 0.8:
            pending = move.begin_read(random.choice([100, 1000]), NOW_MS)
        elif pending is not None:
            # The bytes that were read may have been truncated meanwhile, and the file be written over.
            move.append(pending[0], b"".join(chunk.read() for chunk in pending[1]), NOW_MS) if pending[1] else None
            pending = None
    copy_all(move)
    assert move.finish(NOW_MS) and move.lag == 0
    assert numbers(move.future) == numbers(log)
    logs.futures.replace(("t", 0))
    future = move.future
    assert (future.log_start_offset, future.log_end_offset) == (log.log_start_offset, log.log_end_offset)
    assert future.high_watermark == log.high_watermark
    assert future.epochs.entries() == log.epochs.entries()
    assert logs.get(("t", 0)) is future and not logs.futures.logs


def test_transactions_and_producers_come_along() -> None:
    logs, _, partition = make(Random(1))
    log = partition.log
    append(log, b"00000", b"00001", producer_id=7, sequence=0, transactional=True)
    marker = transaction_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_leader([marker], [header_of(marker)], leader_epoch=0, now_ms=NOW_MS)
    append(log, b"00003", producer_id=7, sequence=2, transactional=True)
    move = LogDirMove(partition, logs.futures.create(log, TOPIC_ID, TWO))
    copy_all(move)
    future = logs.futures.replace(("t", 0))
    assert aborted_transactions(future, 0, 4) == aborted_transactions(log, 0, 4) != []
    assert future.last_stable_offset == log.last_stable_offset == 3
    again = batch(b"00003", producer_id=7, sequence=2, transactional=True)
    info = future.append_as_leader([again], [header_of(again)], leader_epoch=0, now_ms=NOW_MS)
    assert info.duplicate and info.base_offset == 3


def test_a_move_goes_on_to_the_next_stage_alone() -> None:
    logs, _, partition = make(Random(1))
    move = LogDirMove(partition, logs.futures.create(partition.log, TOPIC_ID, TWO))

    def move_on(before: Stage, after: Stage) -> None:
        move.stage = before
        move.to_stage(after)
        assert move.stage is after

    check_every_pair(TRANSITIONS, move_on, name=lambda stage: stage.name)


def test_a_log_whose_end_was_compacted_away_is_copied_to_its_end() -> None:
    logs, disk, partition = make(Random(1))
    log = partition.log
    append(log, b"00000")
    roll(log, NOW_MS)
    append(log, b"00001")
    roll(log, NOW_MS)
    # Compaction leaves such a segment if it removes every record.
    segment = log.segments[1]
    disk.open(segment.path).truncate(0)
    segment.batches.size_bytes = 0
    segment.indexes.rebuild(4096)
    move = LogDirMove(partition, logs.futures.create(log, TOPIC_ID, TWO))
    copy_all(move)
    assert move.lag == 0 and move.future.log_end_offset == 2
    future = logs.futures.replace(("t", 0))
    append(future, b"00002")
    assert numbers(future) == [0, 2]


def test_a_name_that_leaves_no_room_for_a_copys_is_refused() -> None:
    logs, _, _ = make(Random(1))
    log = logs.create("n" * 240, 0, UUID(int=6), {}, log_dir=ONE)
    with pytest.raises(ApiError) as caught:
        logs.futures.create(log, UUID(int=6), TWO)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("known", [ONE, TWO])
@pytest.mark.parametrize("is_longer", [False, True])
def test_of_two_logs_the_controllers_directory_decides(known: Path, is_longer: bool) -> None:
    logs, disk, partition = make(Random(1))
    append(partition.log, b"00000", b"00001")
    move = LogDirMove(partition, logs.futures.create(partition.log, TOPIC_ID, TWO))
    copy_all(move)
    other = partition.log if known == TWO else move.future
    if is_longer:
        append(other, b"00002")
    rename_to(move.future, TWO / "t-0")  # and the process dies before the log gets another name
    disk.process_died()
    again = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, Random(1))
    for directory in again.directories:
        directory.directory_id = IDS[directory.path]
    again.lock_dirs()
    again.load(assigned=lambda topic, number: IDS[known])
    log = again.get(("t", 0))
    assert log is not None and log.log_dir == known
    assert numbers(log) == [0, 1]
    again.removal.begin_removals()()
    left = [path for path in (ONE, TWO) if disk.is_dir(path / "t-0")]
    assert left == ([ONE, TWO] if is_longer else [known]), "what somebody may miss is left alone"


def test_a_log_that_gets_the_name_of_a_removed_copy_keeps_its_files() -> None:
    logs, disk, partition = make(Random(1))
    append(partition.log, b"00000", b"00001")
    move = LogDirMove(partition, logs.futures.create(partition.log, TOPIC_ID, TWO))
    copy_all(move)
    rename_to(move.future, TWO / "t-0")  # and the process dies before the log gets another name
    disk.process_died()
    again = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, Random(1))
    for directory in again.directories:
        directory.directory_id = IDS[directory.path]
    again.lock_dirs()
    again.load(assigned=lambda topic, number: IDS[TWO])
    log = again.get(("t", 0))
    assert log is not None and log.log_dir == TWO and not disk.is_dir(ONE / "t-0"), "the copy gave its name free"
    rename_to(log, ONE / "t-0")  # a move back ends before anything is removed
    again.removal.begin_removals()()
    assert numbers(log) == [0, 1] and disk.is_dir(ONE / "t-0")
    assert not [name for name in disk.list_dir(ONE) if name.endswith("-delete")]


def test_a_copy_that_was_the_log_before_the_power_went_is_the_log() -> None:
    logs, disk, partition = make(Random(1))
    append(partition.log, b"00000")
    move = LogDirMove(partition, logs.futures.create(partition.log, TOPIC_ID, TWO))
    copy_all(move)
    append(move.future, b"00001")
    disk.process_died()
    again = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, Random(1))
    for directory in again.directories:
        directory.directory_id = IDS[directory.path]
    again.lock_dirs()
    again.load(assigned=lambda topic, number: IDS[TWO])
    log = again.get(("t", 0))
    assert log is not None and log.directory == TWO / "t-0" and numbers(log) == [0, 1]
    assert not again.futures.logs and not disk.is_dir(ONE / "t-0")


def create_second_copy(logs: LogManager, disk: CrashingDisk, values: list[bytes]) -> None:
    """Another copy of the partition, in TWO, of which no start can know where it is from."""
    other = LogManager(disk, FixedClock(), [TWO], CONFIG, Random(2))
    other.load()
    append(other.create("t", 0, TOPIC_ID, {}, log_dir=TWO), *values)
    disk.process_died()


def start(disk: CrashingDisk, known: Path) -> LogManager:
    again = LogManager(disk, FixedClock(), [ONE, TWO], CONFIG, Random(1))
    for directory in again.directories:
        directory.directory_id = IDS[directory.path]
    again.lock_dirs()
    again.load(assigned=lambda topic, number: IDS[known])
    return again


def strays(disk: CrashingDisk) -> list[Path]:
    return [TWO / name for name in disk.list_dir(TWO) if re.fullmatch(r"t-0\.[0-9a-f]{32}-stray", name)]


def values_in(disk: CrashingDisk, directory: Path) -> bytes:
    return b"".join(disk.snapshot()[directory / name] for name in disk.list_dir(directory) if name.endswith(".log"))


def test_a_move_keeps_an_older_copy_under_another_name() -> None:
    logs, disk, partition = make(Random(1))
    append(partition.log, b"00000", b"00001")
    create_second_copy(logs, disk, [b"theirs0", b"theirs1", b"theirs2"])
    again = start(disk, ONE)
    log = again.get(("t", 0))
    assert log is not None and log.log_dir == ONE and disk.is_dir(TWO / "t-0"), "it is left alone"
    log.update_high_watermark(log.log_end_offset)
    partition = Partition("t", 0, TOPIC_ID, log, broker_id=ME)
    apply_image(partition, PartitionImage(replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=0, partition_epoch=0))
    copy_all(LogDirMove(partition, again.futures.create(log, TOPIC_ID, TWO)))
    moved = again.futures.replace(("t", 0))
    assert moved.directory == TWO / "t-0" and numbers(moved) == [0, 1]
    (stray,) = strays(disk)
    assert b"theirs2" in values_in(disk, stray), "nothing is lost"
    disk.process_died()
    after = start(disk, TWO).get(("t", 0))
    assert after is not None and after.log_dir == TWO and numbers(after) == [0, 1]
    assert strays(disk) == [stray], "a start leaves it alone"


def test_a_new_log_does_not_take_the_records_of_another_copy_for_its_own() -> None:
    logs, disk, partition = make(Random(1))
    append(partition.log, b"00000", b"00001")
    create_second_copy(logs, disk, [b"theirs0", b"theirs1", b"theirs2"])
    again = start(disk, ONE)
    assert again.delete(("t", 0))
    log = again.create("t", 0, UUID(int=7), {}, log_dir=TWO)
    assert log.directory == TWO / "t-0" and log.log_end_offset == 0
    (stray,) = strays(disk)
    assert b"theirs2" in values_in(disk, stray)


async def test_a_copy_whose_flush_found_no_descriptor_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = CrashingDisk(Random(1), DiskFaults(sync_ms=(0.0, 0.0)), lambda: NOW_MS)
    for path in (ONE, TWO):
        make_dirs_durably(disk, path)
    broker, writer = Broker(disk, {}, Random(1)), Writer(Random(1))
    while not writer.appended:
        writer.write(broker.partition)
    failed: list[Path] = []

    def without_descriptors(held: Any, files: Any, paths: Any, directories: list[Path], *more: Any) -> None:
        if not failed and any(TWO in (path, path.parent) for path in directories):
            failed.extend(directories)
            raise OSError(errno.EMFILE, "too many open files")
        make_durable(held, files, paths, directories, *more)

    monkeypatch.setattr(flush_state, "make_durable", without_descriptors)
    broker.moves.begin(broker.partition, TWO)
    await broker.run_moves()
    log = broker.partition.log
    assert failed and log.log_dir == TWO
    active = set(log.segments.active.indexes.paths()[:2])
    assert {path for path in disk.uncertain() if log.directory in path.parents} <= active
    await end_of_process(disk)
