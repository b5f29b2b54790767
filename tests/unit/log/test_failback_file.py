"""A failback writes records into a file before it truncates them, or truncates nothing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import DiskUsage
from odradek.log import failback_file
from odradek.log.config import LogConfig
from odradek.log.failback_file import failback_path, newest_failback_file, write_failback_file
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.opening import close_log, open_log
from odradek.log.rolling import advance_end_to
from odradek.log.truncation import truncate_to
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log_manager import HandClock

TOPIC_ID = UUID(int=5)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(0), DiskFaults(), lambda: NOW_MS)


@pytest.fixture
def log(disk: SimDisk) -> Iterator[Log]:
    path = Path("/logs/t-0")
    disk.make_dirs(path)
    config = LogConfig(segment_bytes=1000)
    found = open_log(FileCache(disk), path, ("t", 0), config, now_ms=NOW_MS)
    for number in range(40):
        data = batch(b"%d" % number, b"x" * 40)
        found.append_as_leader([data], [header_of(data)], leader_epoch=3, now_ms=NOW_MS)
    found.update_high_watermark(80)
    yield found
    close_log(found)


def written(log: Log, first: int) -> bytes:
    return b"".join(
        segment.batch_bytes(position, header)
        for segment in log.segments
        for position, header in segment.headers(0)
        if header.base_offset >= first
    )


@pytest.mark.parametrize("read_bytes", [failback_file.READ_BYTES, 200, 1])
def test_all_batches_from_there_on(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, *, read_bytes: int
) -> None:
    monkeypatch.setattr(failback_file, "READ_BYTES", read_bytes)
    path = failback_path(log, 22, 7, TOPIC_ID)
    assert path == Path(f"/logs/t-0.00000000000000000022.failback-7-{TOPIC_ID.hex}.log")
    size = asyncio.run(write_failback_file(log, 22, path))
    expected = written(log, 22)
    assert len(log.segments.bases) > 3
    assert disk.open(path, read_only=True).read_at(0, 1 << 20) == expected
    assert size == len(expected)


@pytest.mark.parametrize("is_known", [True, False])
def test_without_space_there_is_no_half_of_a_file(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Whether the disk says so before, or gets full in the middle."""
    path = failback_path(log, 22, 7, TOPIC_ID)
    if not is_known:
        monkeypatch.setattr(disk, "usage", lambda path: DiskUsage(2**40, 2**40))
    disk.faults = DiskFaults(capacity_bytes=disk.used_bytes() + 500)
    with pytest.raises(ApiError) as caught:
        asyncio.run(write_failback_file(log, 22, path))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.list_dir(Path("/logs")) == ["t-0"]


def test_where_no_record_is_left_the_file_is_empty(log: Log, disk: SimDisk) -> None:
    """Compaction has dropped the last of them: the log's end is where it was."""
    advance_end_to(log, 200, NOW_MS)
    path = failback_path(log, 90, 7, TOPIC_ID)
    assert asyncio.run(write_failback_file(log, 90, path)) == 0
    assert disk.size(path) == 0


def test_a_name_fits_into_a_directory(disk: SimDisk) -> None:
    log: Any = SimpleNamespace(
        partition_dir=SimpleNamespace(files=SimpleNamespace(disk=disk)),
        topic_partition=("t" * 249, 123456),
        log_dir=Path("/logs"),
    )
    path = failback_path(log, 2**62, 2**30, TOPIC_ID)
    assert len(path.name) + len("-99.tmp") <= 255
    for count, is_cut in ((150, False), (151, True)):
        log.topic_partition = ("t" * count, 1)
        front = failback_path(log, 0, 1, TOPIC_ID).name.partition(".")[0]
        assert ("~" in front) == is_cut and front.startswith("t" * 150), "two long topics have two names"


def test_a_file_that_is_there_is_not_written_over(log: Log, disk: SimDisk) -> None:
    """A topic that was deleted and has come back may be cut at the same offset and epoch."""
    first = failback_path(log, 22, 7, TOPIC_ID)
    asyncio.run(write_failback_file(log, 22, first))
    kept = disk.open(first, read_only=True).read_at(0, 1 << 20)
    second = failback_path(log, 22, 7, TOPIC_ID)
    asyncio.run(write_failback_file(log, 30, second))
    assert second.name == f"t-0.00000000000000000022.failback-7-{TOPIC_ID.hex}-1.log"
    assert disk.open(first, read_only=True).read_at(0, 1 << 20) == kept
    assert failback_path(log, 22, 7, TOPIC_ID).name.endswith(f".failback-7-{TOPIC_ID.hex}-2.log")


def test_files_of_an_unfinished_attempt_are_removed(log: Log, disk: SimDisk) -> None:
    names = [
        f"{front}.{5:020}.failback-{rest}"
        for front in ("t-0", "t-1")
        for rest in (f"6-{TOPIC_ID.hex}.log.tmp", f"6-{TOPIC_ID.hex}-1.log.tmp")
    ]
    names.append(f"t-0.{5:020}.failback-6-{TOPIC_ID.hex}.log")
    for name in names:
        disk.open(Path("/logs") / name, create=True).close()
    path = failback_path(log, 22, 7, TOPIC_ID)
    asyncio.run(write_failback_file(log, 22, path))
    assert disk.list_dir(Path("/logs")) == sorted([*names[2:], "t-0", path.name])


def test_damage_is_copied_with_the_rest(log: Log, disk: SimDisk) -> None:
    segment = next(log.segments.from_offset(30))
    position = segment.position_of(30)
    segment.open_shared().file.write_at(position + 16, [b"\0"])  # the magic byte of a header
    raw = b"".join(each.open_shared().file.read_at(0, each.size_bytes) for each in log.segments)
    path = failback_path(log, 22, 7, TOPIC_ID)
    size = asyncio.run(write_failback_file(log, 22, path))
    assert disk.open(path, read_only=True).read_at(0, 1 << 20) == raw[-size:]
    assert size > 9 * len(batch(b"30", b"x" * 40))


def test_a_part_of_the_disk_stays_free(log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(each.size_bytes for each in log.segments.from_offset(22))
    usable = needed + 10_000 - 1
    monkeypatch.setattr(disk, "usage", lambda path: DiskUsage(1_000_000, usable))
    with pytest.raises(ApiError):
        asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID)))
    usable += 1
    asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID)))


@pytest.mark.parametrize("total", [1000 * 1024**3, 10 * 1024**3])
def test_a_large_disk_keeps_a_gibibyte_at_most(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    needed = sum(each.size_bytes for each in log.segments.from_offset(22))
    usable = needed + min(1024**3, total // 100) - 1
    monkeypatch.setattr(disk, "usage", lambda path: DiskUsage(total, usable))
    with pytest.raises(ApiError):
        asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID)))
    usable += 1
    asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID)))


def test_the_loop_waits_for_no_fsync(log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: list[bool] = []
    threads: list[object] = []
    sync_dir = disk.sync_dir

    async def run_blocking(work: Callable[[], Any]) -> Any:
        threads.append(work)
        try:
            return work()
        finally:
            threads.pop()

    def synced(path: Path) -> None:
        on_loop.append(not threads)
        sync_dir(path)

    monkeypatch.setattr(disk, "run_blocking", run_blocking)
    monkeypatch.setattr(disk, "sync_dir", synced)
    asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID)))
    assert on_loop == [False]


def test_progress_is_reported(log: Log) -> None:
    said: list[tuple[int, int]] = []
    path = failback_path(log, 0, 7, TOPIC_ID)
    size = asyncio.run(write_failback_file(log, 0, path, lambda done, whole: said.append((done, whole))))
    assert [done for done, _ in said] == sorted(done for done, _ in said)
    assert said[-1] == (size, size)
    assert len(said) == len(log.segments), "a read takes megabytes, and a segment here has fewer"


def test_a_log_that_is_truncated_meanwhile_ends_the_copy(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller sees that the log has changed, and discards the file."""
    monkeypatch.setattr(failback_file, "READ_BYTES", 100)
    whole = len(written(log, 22))

    def truncate(done: int, whole: int) -> None:
        truncate_to(log, 22)

    size = asyncio.run(write_failback_file(log, 22, failback_path(log, 22, 7, TOPIC_ID), truncate))
    assert 0 < size < whole


def test_the_newest_file_of_a_topic_is_found_again(log: Log) -> None:
    assert newest_failback_file(log, TOPIC_ID) is None
    for offset, epoch in ((30, 7), (22, 11), (25, 8)):
        asyncio.run(write_failback_file(log, offset, failback_path(log, offset, epoch, TOPIC_ID)))
    again = failback_path(log, 22, 11, TOPIC_ID)
    size = asyncio.run(write_failback_file(log, 22, again))
    assert newest_failback_file(log, TOPIC_ID) == (22, 11, again, size)
    assert newest_failback_file(log, UUID(int=6)) is None, "another topic had that name"


def test_files_that_cannot_be_listed_are_a_failed_directory(
    log: Log, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_dir(path: Path) -> list[str]:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(disk, "list_dir", list_dir)
    with pytest.raises(StorageError, match="input/output error") as error:
        newest_failback_file(log, TOPIC_ID)
    assert error.value.log_dir == Path("/logs")


def test_a_start_removes_what_was_not_finished() -> None:
    disk = SimDisk(Random(0), DiskFaults(), lambda: NOW_MS)
    whole = f"t-0.{5:020}.failback-6-{TOPIC_ID.hex}.log"
    disk.make_dirs(Path("/logs"))
    for name in (whole, whole + ".tmp"):
        disk.open(Path("/logs") / name, create=True).close()
    manager = LogManager(disk, HandClock(), (Path("/logs"),), LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    names = disk.list_dir(Path("/logs"))
    assert whole in names
    assert whole + ".tmp" not in names
