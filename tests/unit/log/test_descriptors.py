"""No operation on a log leaves a file open: a broker has few descriptors, and runs for months."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common.ports import File
from odradek.log.config import LogConfig
from odradek.log.failback_file import failback_path, write_failback_file
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from tests.sim.disk import DiskFaults
from tests.support.disks.crashing import CrashingDisk
from tests.support.models.batches import NOW_MS
from tests.unit.log.test_log_left_out import KEY, abort, append
from tests.unit.log.test_log_manager import HandClock
from tests.unit.log.test_log_overflow import DIRECTORY, OFFSETS, STARTS, start, too_long, write


class CountedFile:
    """A file that its disk counts until it is closed."""

    def __init__(self, disk: CountedDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        disk.open_paths.append(file.path)

    def close(self) -> None:
        self._disk.open_paths.remove(self._file.path)
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountedDisk(CrashingDisk):
    """Knows the files that are open."""

    def __init__(self) -> None:
        super().__init__(Random(1), DiskFaults(sync_ms=(0.0, 0.0)), lambda: NOW_MS)
        self.open_paths: list[Path] = []

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        return cast("File", CountedFile(self, super().open(path, create=create, read_only=read_only)))


class Home:
    """A log of two segments, the first of which has an aborted transaction."""

    def __init__(self) -> None:
        self.disk = CountedDisk()
        self.manager = LogManager(self.disk, HandClock(), [DIRECTORY.parent], LogConfig(), Random(1))
        self.manager.lock_dirs()
        self.manager.load()
        self.log = self.manager.create(*KEY, UUID(int=1), {})
        append(self.log, b"a", b"b")
        abort(self.log, 7)
        roll(self.log, NOW_MS)
        append(self.log, b"c")
        append(self.log, b"d", epoch=1)

    def left_open(self) -> list[Path]:
        """The files that are open though the cache has none."""
        self.manager.files.invalidate_below(DIRECTORY.parent)
        return self.disk.open_paths


def copy_aside(log: Log) -> None:
    asyncio.run(write_failback_file(log, 1, failback_path(log, 1, 1, UUID(int=1))))


def flush_and_truncate(log: Log) -> None:
    log.flush()
    truncate_to(log, 2)


OPERATIONS: dict[str, Callable[[Log], object]] = {
    "nothing more": lambda log: None,
    "flush": lambda log: log.flush(),
    "flush and truncate": flush_and_truncate,
    "begin again": lambda log: truncate_fully_and_start_at(log, 9),
    "copy aside": copy_aside,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_closes_what_it_opens(operation: str) -> None:
    home = Home()
    OPERATIONS[operation](home.log)
    assert home.left_open() == []
    home.manager.close()
    assert home.left_open() == []


def test_a_start_closes_what_it_opens() -> None:
    home = Home()
    home.manager.unlock()
    home.disk.process_died()
    assert home.left_open() == []
    again = LogManager(home.disk, HandClock(), [DIRECTORY.parent], LogConfig(), Random(1))
    again.lock_dirs()
    again.load()
    again.files.invalidate_below(DIRECTORY.parent)
    assert home.disk.open_paths == []


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_split_of_a_segment_closes_what_it_opens(is_interrupted: bool) -> None:
    """The interrupted one has the new segments, and the old one is as long as it was."""
    disk = CountedDisk()
    values = too_long(disk, with_next=False)
    if is_interrupted:
        log = start(disk, clean=False)
        parts = {each.base_offset: bytes(disk.seen(each.path)) for each in log.segments[1:]}
        log.partition_dir.files.invalidate_below(DIRECTORY)
        disk.remove_tree(DIRECTORY)
        too_long(disk, with_next=False)
        for base, data in parts.items():
            write(disk, base, [data])
            disk.rename(DIRECTORY / f"{base:020}.log", DIRECTORY / f"{base:020}.log.swap")
    log = start(disk, clean=False)
    assert log.segments.bases == STARTS and len(values) == len(OFFSETS)
    log.partition_dir.files.invalidate_below(DIRECTORY)
    del log
    assert disk.open_paths == []
