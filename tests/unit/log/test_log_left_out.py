"""Entries that a full disk, or a kill, kept out of a log's small files are found in its batches by the next start."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common import ports
from odradek.common.ports import Buffer, File
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.recovery import snapshot_offsets
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.truncation import truncate_to
from odradek.record.batch import BatchHeader
from odradek.record.control import transaction_marker
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of

DIRECTORY = Path("/logs")
KEY = ("t", 0)


class FullDisk(SimDisk):
    """A disk without space for files whose names end in one of these."""

    full_for: tuple[str, ...] = ()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        return cast("File", FullFile(self, super().open(path, create=create, read_only=read_only)))


class FullFile:
    """A file of that disk."""

    def __init__(self, disk: FullDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        name = self._file.path.name.removesuffix(".tmp").removesuffix(".flushed")
        if self._disk.full_for and name.endswith(self._disk.full_for):
            raise OSError(errno.ENOSPC, "no space left on device")
        return self._file.write_at(position, chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 5000


def start(disk: FullDisk) -> tuple[LogManager, Log]:
    manager = LogManager(disk, FixedClock(), [DIRECTORY], LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    return manager, manager.get(KEY) or manager.create(*KEY, UUID(int=1), {})


def append(log: Log, *values: bytes, epoch: int = 0, **fields: Any) -> None:
    append_batch(log, batch(*values, **fields), epoch)


def append_batch(log: Log, data: bytes, epoch: int = 0) -> None:
    log.append_as_leader([data], [header_of(data)], leader_epoch=epoch, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)


def abort(log: Log, producer_id: int) -> None:
    append(log, b"aborted", producer_id=producer_id, sequence=0, transactional=True)
    marker = transaction_marker(
        commit=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    append_batch(log, marker)


def aborted(log: Log) -> list[int]:
    return [entry.producer_id for entry in aborted_transactions(log, 0, log.log_end_offset)]


def make() -> tuple[FullDisk, LogManager, Log]:
    disk = FullDisk(Random(1), DiskFaults(), lambda: NOW_MS)
    return disk, *start(disk)


def test_epochs_that_a_clean_stop_had_no_space_for_are_found_in_the_log() -> None:
    disk, manager, log = make()
    append(log, b"a")
    log.flush()
    log.assign_epoch(3, 1)
    append(log, b"b", b"c", epoch=3)
    expected = log.epochs.entries()
    disk.full_for = ("leader-epoch-checkpoint",)
    manager.close()
    disk.full_for = ()
    manager, log = start(disk)
    assert log.epochs.entries() == expected == [(0, 0), (3, 1)]
    manager.checkpoint_work()()
    disk.process_died()
    _, log = start(disk)
    assert log.epochs.entries() == expected, "the recovery point stays below what is not written"


def test_an_abort_missing_from_the_index_is_found_in_the_log() -> None:
    disk, manager, log = make()
    append(log, b"a")
    log.flush()
    abort(log, 7)
    disk.full_for = (".txnindex",)
    manager.close()
    disk.full_for = ()
    manager, log = start(disk)
    assert aborted(log) == [7]
    manager.checkpoint_work()()
    disk.process_died()
    _, log = start(disk)
    assert aborted(log) == [7], "the recovery point stays below what is not written"


def test_a_kill_right_after_a_cut_loses_no_abort_below_it() -> None:
    disk, manager, log = make()
    abort(log, 7)
    manager.close()
    manager, log = start(disk)
    append(log, b"a")
    abort(log, 8)
    log.flush()
    truncate_to(log, 3)
    assert aborted(log) == [7], "readers between the cut and the kill see it, too"
    manager.checkpoint_work()()
    disk.process_died()
    _, log = start(disk)
    assert aborted(log) == [7]


def test_a_bit_that_flips_while_a_start_reads_a_marker_costs_no_abort() -> None:
    disk, _, log = make()
    abort(log, 7)
    disk.process_died()
    again = LogManager(disk, FixedClock(), [DIRECTORY], LogConfig(), Random(1))
    flips = [1]
    read = Segment.batch_bytes

    def flipped(segment: Segment, position: int, header: BatchHeader) -> bytes:
        data = bytearray(read(segment, position, header))
        data[-1] ^= flips.pop() if flips and header.is_control else 0
        return bytes(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "batch_bytes", flipped)
        again.load()
    found = again.get(KEY)
    assert not flips and found is not None
    assert aborted(found) == [7]


def test_entries_behind_a_damaged_index_are_not_all_of_it() -> None:
    disk, manager, log = make()
    abort(log, 7)
    manager.close()
    manager, log = start(disk)
    abort(log, 8)
    abort(log, 9)
    disk.process_died()
    index = disk.open(log.segments[0].indexes.transactions.path)
    index.write_at(34, [bytes(10)])  # as a full disk leaves of an entry
    index.close()
    manager, log = start(disk)
    log.flush()
    disk.process_died()
    manager, log = start(disk)
    assert aborted(log) == [7, 8, 9]


def test_epochs_that_a_cut_had_no_space_for_are_written_by_the_next_flush() -> None:
    disk, manager, log = make()
    append(log, b"a")
    append(log, b"b", epoch=3)
    log.flush()
    disk.full_for = ("leader-epoch-checkpoint",)
    truncate_to(log, 1)
    disk.full_for = ()
    log.flush()
    manager.checkpoint_work()()
    manager.unlock()
    disk.lose_power()
    _, log = start(disk)
    assert log.epochs.entries() == [(0, 0)]
    assert ports.read_file(disk, log.directory / "leader-epoch-checkpoint").split()[1:] == [b"1", b"0", b"0"]


def test_the_first_flush_of_a_log_makes_the_id_of_its_topic_durable() -> None:
    for seed in range(8):
        disk = FullDisk(Random(seed), DiskFaults(), lambda: NOW_MS)
        _, log = start(disk)
        append(log, b"a")
        log.flush()
        disk.lose_power()
        manager, _ = start(disk)
        assert manager.topic_id(KEY) == UUID(int=1)


@pytest.mark.parametrize("are_left", [True, False])
def test_a_start_writes_the_snapshots_that_a_segment_lacks(are_left: bool) -> None:
    """Once retention has dropped the segments before, only a snapshot knows their producers."""
    disk, manager, log = make()
    for number in range(3):
        append(log, b"v", producer_id=number, sequence=0)
        roll(log, NOW_MS)
    log.flush()
    if not are_left:
        for offset in snapshot_offsets(disk, log.directory):
            disk.remove(segment_path(log.directory, offset, ".snapshot"))
    manager.unlock()
    disk.process_died()
    manager, log = start(disk)
    assert snapshot_offsets(disk, log.directory) == [1, 2, 3]
    log.update_high_watermark(3)
    log.advance_log_start(2)
    assert delete_old_segments(log, NOW_MS) == 2
    manager.unlock()
    disk.process_died()
    _, log = start(disk)
    assert log.log_start_offset == 2 and sorted(log.producers.producers) == [0, 1, 2]
