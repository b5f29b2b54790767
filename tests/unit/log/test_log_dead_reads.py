"""A disk that cannot be read takes its directory offline, also where an append is the first to notice."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast
from uuid import UUID

import pytest

from odradek.common.errors import StorageError
from odradek.common.ports import File
from odradek.common.real_io import RealClock
from odradek.log.config import LogConfig
from odradek.log.follower_append import append_as_follower
from odradek.log.manager import LogManager
from tests.support.disks.failing import FailingDisk, FailingFile
from tests.support.models.batches import NOW_MS, batch, header_of


class Unreadable(FailingFile):
    """Reads fail once the disk is dead."""

    def read_at(self, position: int, length: int) -> bytes:
        self._check(self._file.path)
        return self._file.read_at(position, length)


class UnreadableDisk(FailingDisk):
    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        return cast("File", Unreadable(super().open(path, create=create, read_only=read_only), self.check))


@pytest.mark.parametrize("as_leader", [True, False])
def test_an_append_that_must_know_the_age_of_a_segment(tmp_path: Path, as_leader: bool) -> None:
    disk = UnreadableDisk()
    manager = LogManager(disk, RealClock(), [tmp_path], LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {})
    data = batch(b"first")
    log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    disk.dead.add(tmp_path)
    end = log.log_end_offset
    more = bytearray(batch(b"second"))
    with pytest.raises(StorageError, match="Input/output error"):
        if as_leader:
            log.append_as_leader([more], [header_of(bytes(more))], leader_epoch=0, now_ms=NOW_MS)
        else:
            more[7] = end
            more[12:16] = bytes(4)
            append_as_follower(log, bytes(more), now_ms=NOW_MS)
    assert log.log_end_offset == end
    disk.dead.clear()
    manager.unlock()
    disk.close()
