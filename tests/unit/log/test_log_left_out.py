"""Entries that a full disk, or a kill, kept out of a log's small files are found in its batches by the next start."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common.ports import Buffer, File
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.search import aborted_transactions
from odradek.log.segment import Segment
from odradek.log.truncation import truncate_to
from odradek.record.batch import BatchHeader
from odradek.record.control import transaction_marker
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of

DIRECTORY = Path("/logs")
KEY = ("t", 0)


class FullDisk(SimDisk):
    """Without space for files whose names end in one of these."""

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
        return 0


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
