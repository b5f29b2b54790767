"""All logs of a broker: which of them want to be flushed, and what a full disk does to checkpoints."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from tests.support.models.batches import NOW_MS, batch, header_of


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
