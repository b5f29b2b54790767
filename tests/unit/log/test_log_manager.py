"""All logs of a broker: flushes, checkpoints, the expiry of producers, and the names of directories."""

from __future__ import annotations

import errno
import random
import re
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.append_info import AppendInfo
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of


class HandClock:
    """Goes on where the test says so."""

    at_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


class FailingDisk(RealDisk):
    """A real disk whose renames fail on request."""

    error: OSError | None = None

    def rename(self, source: Path, target: Path) -> None:
        if self.error is not None:
            raise self.error
        super().rename(source, target)


def managed(tmp_path: Path) -> tuple[LogManager, FailingDisk]:
    disk = FailingDisk(workers=1)
    manager = LogManager(disk, RealClock(), [tmp_path], LogConfig(), random.Random(1))
    manager.lock_dirs()
    manager.load()
    return manager, disk


def test_a_rolled_segment_is_made_durable_with_default_settings(tmp_path: Path) -> None:
    manager, disk = managed(tmp_path)
    log = manager.create("t", 0, UUID(int=1), {})
    for number in range(3):
        data = batch(b"%d" % number)
        log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
        assert manager.logs_to_flush(0) == []
    roll(log, NOW_MS)
    assert manager.logs_to_flush(0) == [log]
    log.flush()
    assert log.recovery_point == log.segments.bases[-1] == 3
    assert manager.logs_to_flush(0) == []
    manager.close()
    disk.close()


def test_a_recreated_topic_has_no_checkpoints_of_the_old_one(tmp_path: Path) -> None:
    """A crash comes before the checkpoints are written again: the old log's start would hide the new one's records."""
    manager, disk = managed(tmp_path)
    first = manager.create("t", 0, UUID(int=1), {})
    for number in range(9):
        data = batch(b"%d" % number)
        first.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    first.update_high_watermark(9)
    first.advance_log_start(9)
    first.flush()
    manager.checkpoint_work()()
    assert manager.delete(("t", 0))
    disk.error = OSError(errno.ENOSPC, "no space left")
    with pytest.raises(ApiError) as caught:
        manager.create("t", 0, UUID(int=2), {})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.error = None
    second = manager.create("t", 0, UUID(int=2), {})
    data = batch(b"kept")
    second.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    manager.unlock()

    again = LogManager(disk, RealClock(), [tmp_path], LogConfig(), random.Random(2))
    again.lock_dirs()
    again.load()
    log = again.get(("t", 0))
    assert log is not None and again.topic_id(("t", 0)) == UUID(int=2)
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    again.close()
    disk.close()


def test_a_full_disk_leaves_the_old_checkpoints(tmp_path: Path) -> None:
    manager, disk = managed(tmp_path)
    manager.create("t", 0, UUID(int=1), {})
    manager.checkpoint_work()()
    before = (tmp_path / "recovery-point-offset-checkpoint").read_bytes()
    disk.error = OSError(errno.ENOSPC, "no space left")
    manager.checkpoint_work()()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_bytes() == before
    disk.error = OSError(errno.EIO, "broken")
    with pytest.raises(StorageError):
        manager.checkpoint_work()()
    with pytest.raises(StorageError):
        manager.close()
    manager.lock_dirs()  # a close that failed has let go of them
    manager.unlock()
    disk.close()


def simulated(disk: SimDisk, clock: HandClock) -> LogManager:
    manager = LogManager(disk, clock, [Path("/data")], LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    return manager


def append(log: Log, data: bytes) -> AppendInfo:
    return log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)


async def test_a_pass_of_retention_expires_silent_producers() -> None:
    clock, disk = HandClock(), SimDisk(Random(1), DiskFaults(), lambda: NOW_MS)
    manager = simulated(disk, clock)
    log = manager.create("t", 0, UUID(int=1), {})
    append(log, batch(b"v", producer_id=0, sequence=0))
    known = []
    for at_ms in (0, 99, 100, 101):
        clock.at_ms = at_ms
        await manager.retain(log, clock.now_ms(), 100)
        known.append(bool(log.producers.producers))
    assert known == [True, True, False, False]
    manager.unlock()


def test_a_start_takes_what_was_replicated_from_its_checkpoint() -> None:
    """The high watermark after a start is that of the checkpoint, even if more was replicated."""
    disk = SimDisk(Random(1), DiskFaults(), lambda: NOW_MS)
    for replicated, checkpoint in ((1, False), (2, True)):
        manager = simulated(disk, HandClock())
        log = manager.get(("t", 0)) or manager.create("t", 0, UUID(int=1), {})
        assert log.high_watermark == 0
        append(log, batch(b"v", b"w"))
        log.update_high_watermark(replicated)
        if checkpoint:
            manager.checkpoint_work()()
        manager.unlock()
        disk.process_died()
    found = simulated(disk, HandClock()).get(("t", 0))
    assert found is not None and (found.high_watermark, found.log_end_offset) == (2, 4)


def test_a_directory_whose_name_is_nearly_a_partitions_hides_none(tmp_path: Path) -> None:
    manager, disk = managed(tmp_path)
    data = batch(b"kept")
    manager.create("t", 1, UUID(int=1), {}).append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    manager.close()
    disk.close()
    for name in ("t-01", "t-1\n"):
        (tmp_path / name).mkdir()
    again, disk = managed(tmp_path)
    log = again.get(("t", 1))
    assert log is not None and log.log_end_offset == 1
    assert f"{tmp_path / 't-01'}: ignored, the directory of that partition is t-1" in again.notes
    assert not any("\n" in note for note in again.notes), "that is not a directory of a partition"
    again.close()
    disk.close()


@pytest.mark.parametrize("length", [1, 214, 215, 249])
def test_the_name_of_a_deleted_log_fits_into_a_directory(tmp_path: Path, length: int) -> None:
    manager, disk = managed(tmp_path)
    log = manager.create("t" * length, 0, UUID(int=1), {})
    manager.delete(log.topic_partition)
    (left,) = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert re.fullmatch(r"t+(-0?)?\.[0-9a-f]{32}-delete", left) and len(left) == min(255, length + 2 + 40)
    manager.unlock()
    disk.close()


def test_without_power_a_deleted_log_comes_back_whole_or_not_at_all() -> None:
    """Its new name is durable before its files go: under the old one, a log that lacks some would be opened."""
    for seed in range(40):
        clock, disk = HandClock(), SimDisk(Random(seed), DiskFaults(), lambda: NOW_MS)
        manager = simulated(disk, clock)
        log = manager.create("t", 0, UUID(int=1), {})
        for _ in range(3):
            append(log, batch(b"v"))
            roll(log, NOW_MS)
        log.flush()
        disk.sync_dir(Path("/data"))
        manager.delete(("t", 0))
        clock.at_ms = log.config.file_delete_delay_ms
        manager.removal.begin_removals()()
        disk.lose_power()
        found = simulated(disk, HandClock()).get(("t", 0))
        assert found is None, "the name was durable before the first file went"


def test_a_log_is_removed_at_once_where_no_longer_name_fits(tmp_path: Path) -> None:
    manager, disk = managed(tmp_path)
    manager.create("t", 0, UUID(int=1), {})
    disk.error = OSError(errno.ENOSPC, "no space left")
    assert manager.delete(("t", 0))
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    disk.error = None
    assert manager.create("t", 0, UUID(int=2), {}).log_end_offset == 0
    manager.unlock()
    disk.close()
