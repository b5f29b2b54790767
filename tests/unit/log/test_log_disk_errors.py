"""Each operation of the disk fails once, at any place in the life of a log: the errors, and the records that stay.

A disk that fails takes its log directory offline; a full one (or no descriptor) refuses the operation, which succeeds
when it is repeated. An error of a read or a write is always reported, and none loses a record.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import StorageError
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.log.retention import delete_old_segments, delete_records
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, first_record_ms, search_timestamp
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from tests.sim.disk import DiskFaults
from tests.support.disks.crashing import CrashingDisk

DIRECTORY = Path("/data")
KEY = ("t", 0)
NOW_MS = 1_767_225_600_000
CHANGE, READ = "change", "read"


class FailingOnce(CrashingDisk):
    """Fails at one change, or one read, that is counted from 1."""

    fails_at: tuple[str, int] = ("", 0)
    has_failed = False
    reads = 0

    def about_to_change(self) -> None:
        self.changes += 1
        if self.fails_at == (CHANGE, self.changes):
            self.has_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def hit(self, fault: str, rate: float) -> bool:
        if fault != "read error":
            return super().hit(fault, rate)
        self.reads += 1
        self.has_failed |= self.fails_at == (READ, self.reads)
        return self.fails_at == (READ, self.reads)


class Clock:
    """It is always the same time."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


@dataclass
class Life:
    """One log with its manager, and its expected content: the offset and the key of each record."""

    disk: FailingOnce
    sequence: int = 0

    def __post_init__(self) -> None:
        self.held: dict[int, bytes] = {}
        self.meant = self.held  # what a step that drops records is about to leave
        self.start = 0
        self.epoch = 0
        self.open()
        self.log = self.manager.create(*KEY, UUID(int=1), {})

    def open(self) -> None:
        config = LogConfig(segment_bytes=400, index_interval_bytes=1, retention_bytes=900, file_delete_delay_ms=0)
        self.manager = LogManager(self.disk, Clock(), [DIRECTORY], config, Random(1))
        self.manager.lock_dirs()
        self.manager.load()

    def _append(self, batch: bytes, key: bytes) -> None:
        info = self.log.append_as_leader([batch], [BatchHeader.read(batch)], leader_epoch=self.epoch, now_ms=NOW_MS)
        self.held[info.base_offset] = key
        self.log.update_high_watermark(self.log.log_end_offset)

    def append(self) -> None:
        known = self.log.producers.producers.get(7)
        sequence = 0 if known is None else known.last_sequence + 1
        key = b"%d" % self.log.log_end_offset
        record = Record(key, b"v" * 60, timestamp_ms=NOW_MS)
        self._append(
            build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True), key
        )

    def abort(self) -> None:
        marker = transaction_marker(
            commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self._append(marker, b"marker")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn an OSError into the StorageError of the log directory, as the callers of a log do."""
        try:
            yield
        except OSError as error:
            raise self.log.partition_dir.failed(error) from error

    def roll(self) -> None:
        roll(self.log, NOW_MS)

    def elect(self) -> None:
        self.epoch += 1

    def flush(self) -> None:
        self.log.flush()

    def checkpoint(self) -> None:
        self.manager.checkpoint_work()()

    def cut(self) -> None:
        offset = self.log.log_end_offset - 2
        self.meant = {each: key for each, key in self.held.items() if each < offset}
        truncate_to(self.log, offset)
        self.held = self.meant

    def delete_records(self) -> None:
        self.start = delete_records(self.log, self.log.log_start_offset + 1)

    def retain(self) -> None:
        delete_old_segments(self.log, NOW_MS)
        self.start = self.log.log_start_offset

    def begin_elsewhere(self) -> None:
        self.meant = {}
        truncate_fully_and_start_at(self.log, self.log.log_end_offset + 3)
        self.held, self.start = {}, self.log.log_end_offset

    def found(self) -> dict[int, bytes]:
        """The key of the first record of each batch that readers get, or `marker`, by base offset."""
        found, log = {}, self.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, max_bytes=10_000)
            with self.refusing():
                data = b"".join(chunk.read() for chunk in read.chunks)
            for position, header in read_batches(data):
                records = read_records(data[position : position + header.size_bytes], header)
                found[header.base_offset] = b"marker" if header.is_control else next(iter(records)).key or b""
                offset = header.last_offset + 1
        return found

    def kept(self, held: dict[int, bytes]) -> dict[int, bytes]:
        """The records that are not deleted."""
        return {offset: key for offset, key in held.items() if offset >= self.log.log_start_offset}

    def look(self) -> None:
        assert self.found() == self.kept(self.held)

    def search(self) -> None:
        log = self.log
        with self.refusing():
            found = search_timestamp(log, NOW_MS).run()
            first = first_record_ms(log, log.log_start_offset, log.log_end_offset)
            aborted_transactions(log, log.log_start_offset, log.log_end_offset)
        assert found is not None and found.offset in self.held and first == NOW_MS

    def stop(self) -> None:
        for work in self.manager.begin_close():
            work()
        self.manager.close()


STORY: list[Callable[[Life], None]] = [
    Life.append,
    Life.append,
    Life.abort,
    Life.flush,
    Life.checkpoint,
    *[Life.append] * 4,
    Life.roll,
    Life.abort,
    Life.elect,
    Life.append,
    Life.look,
    Life.cut,
    Life.append,
    Life.flush,
    *[Life.append] * 3,
    Life.delete_records,
    Life.retain,
    Life.search,
    Life.look,
    Life.checkpoint,
    Life.begin_elsewhere,
    Life.append,
    Life.stop,
]


def live(kind: str, number: int) -> tuple[str, bool]:
    """(the step in which that operation failed, whether the step was refused); "" where there are not so many."""
    disk = FailingOnce(Random(1), DiskFaults(), lambda: NOW_MS)
    life = Life(disk)
    disk.changes = disk.reads = 0
    disk.fails_at = (kind, number)
    where, refused = "", False
    before = life.held
    for step in STORY:
        before = dict(life.held)
        try:
            step(life)
        except StorageError:
            assert disk.has_failed
            refused = True
        if disk.has_failed:
            where = step.__name__
            break
    disk.fails_at = ("", 0)
    disk.process_died()
    life.open()
    found = life.manager.get(KEY)
    assert found is not None
    life.log = found
    after = life.found()
    may_be = [life.kept(each) for each in (life.held, before, life.meant)]
    if where == "begin_elsewhere":  # it goes from its end on
        left = list(life.kept(before).items())
        may_be += [dict(left[:count]) for count in range(len(left))]
    assert after in may_be, f"{kind} {number} {where}: {after}"
    life.append()
    life.flush()
    return where, refused


@pytest.mark.parametrize("kind", [CHANGE, READ])
def test_an_operation_that_fails_is_refused_and_loses_nothing(kind: str) -> None:
    steps = set()
    number = 1
    while (failed := live(kind, number))[0]:
        where, refused = failed
        assert refused, f"{kind} {number} failed in {where}, and nothing was said"
        steps.add(where)
        number += 1
    assert number > 30 and {"append", "cut", "retain", "look"} - {"look" if kind == CHANGE else "retain"} <= steps
