"""A start loads logs: with several threads, from directories that fail, and logs that have to start over."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.loading import LOGS_PER_STEP, RecoveryConfig
from odradek.log.manager import LogManager
from odradek.log.opening import close_log
from odradek.log.rolling import roll
from odradek.log.segment import Segment
from odradek.log.truncation import truncate_fully_and_start_at
from odradek.record.batch import patch_base_offset
from odradek.server.startup.log_loading import load_logs
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append, everything


class UnreadableDisk(FailingDisk):
    """Its dead directories cannot be read either."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> object:  # type: ignore[override]  # it only raises
        self.check(path)
        return super().open(path, create=create, read_only=read_only)

    def size(self, path: Path) -> int:
        self.check(path)
        return super().size(path)


class UnlistedDisk(FailingDisk):
    """Its dead directories cannot be listed."""

    def list_dir(self, path: Path) -> list[str]:
        self.check(path / "any")
        return super().list_dir(path)


class FixedNamesDisk(FailingDisk):
    """A disk on which nothing in dead directories can be renamed."""

    def rename(self, source: Path, target: Path) -> None:
        self.check(source)
        super().rename(source, target)


class FixedTreesDisk(FixedNamesDisk):
    """It is full, and nothing in its dead directories can be removed."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC)

    def remove_tree(self, path: Path) -> None:
        if self.is_dead(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().remove_tree(path)


def manager_of(disk: FailingDisk, *paths: Path) -> LogManager:
    manager = LogManager(disk, RealClock(), list(paths), LogConfig(), Random(1))
    manager.lock_dirs()
    return manager


def test_logs_of_a_directory_that_fails_at_the_start_stay_known(tmp_path: Path) -> None:
    disk, (one, two) = UnreadableDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    for number, path in enumerate((one, two)):
        append(manager.create("t", number, UUID(int=1), {}, log_dir=path), batch(b"v"))
    manager.close()
    assert manager.unopened == frozenset()
    again = manager_of(disk, one, two)
    disk.dead = {two / "t-1"}
    again.load()
    assert again.unopened == {("t", 1)}
    assert again.get(("t", 1)) is None and again.get(("t", 0)) is not None
    again.unlock()
    disk.close()


def test_a_directory_that_cannot_be_listed_is_offline(tmp_path: Path) -> None:
    disk, (one, two) = UnlistedDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    append(manager.create("t", 0, UUID(int=1), {}, log_dir=one), batch(b"v"))
    manager.close()
    disk.dead = {two}
    again = manager_of(disk, one, two)
    assert again.load() == 1
    assert [path for path, log_dir in again.dirs.items() if log_dir.offline] == [two]
    again.unlock()
    disk.dead = {one, two}
    last = manager_of(disk, one, two)
    with pytest.raises(StorageError, match="all log directories are offline"):
        last.load()
    last.unlock()
    disk.close()


@pytest.mark.parametrize("names_are_fixed", [False, True])
def test_a_copy_of_a_moved_log_is_removed_under_another_name_alone(tmp_path: Path, names_are_fixed: bool) -> None:
    disk, (one, two) = FixedNamesDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    append(manager.create("t", 0, UUID(int=1), {}, log_dir=one), batch(b"v"))
    manager.close()
    shutil.copytree(one / "t-0", two / "t-0")
    disk.dead = {two} if names_are_fixed else set()
    again = manager_of(disk, one, two)
    for number, log_dir in enumerate(again.dirs.values()):
        log_dir.directory_id = UUID(int=number + 100)
    loader = again.begin_load(assigned=lambda topic, partition_id: UUID(int=100))
    loader.release_names(lambda: 7)
    assert loader.to_remove == ([] if names_are_fixed else [two / f"t-0.{7:032x}-delete"])
    assert (two / "t-0").exists() == names_are_fixed, "what cannot be renamed stays, for the next start"
    assert (one / "t-0").exists()
    again.unlock()
    disk.close()


@pytest.mark.parametrize(
    ("fails", "copies", "assigned", "remaining", "failing"),
    [
        pytest.param("two", 1, "two", "one/t-0", FixedNamesDisk, id="the complete copy cannot get the name of the log"),
        pytest.param("one", 1, "two", "two/t-0", FixedNamesDisk, id="the log that it replaces cannot be discarded"),
        pytest.param("two", 2, "one", "one/t-0", FixedNamesDisk, id="a second copy cannot be discarded"),
        pytest.param("two", 2, "one", "one/t-0", FixedTreesDisk, id="a second copy on a full disk cannot be removed"),
    ],
)
async def test_a_directory_that_fails_at_a_copy_does_not_stop_the_start(
    fails: str,
    copies: int,
    assigned: str,
    remaining: str,
    failing: type[FailingDisk],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, (one, two) = failing(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    moved = manager.create("t", 0, UUID(int=1), {}, log_dir=one)
    append(moved, batch(b"v"))
    append(manager.futures.create(moved, UUID(int=1), two), batch(b"v"))
    for number, path in enumerate((one, two), 1):
        manager.create("t", number, UUID(int=1), {}, log_dir=path)
    manager.close()
    (copy,) = two.glob("*-future")
    if copies == 2:
        shutil.copytree(copy, two / f"t-0.{7:032x}-future")
    again = manager_of(disk, one, two)
    ids = {path: UUID(int=number) for number, path in enumerate((one, two), 100)}
    for path, log_dir in again.dirs.items():
        log_dir.directory_id = ids[path]
    disk.dead = {tmp_path / fails}
    place = ids[tmp_path / assigned]
    assert await load_logs(disk, again, RecoveryConfig(), lambda topic: {}, lambda topic, number: place) == 2
    lost, kept = (("t", 1), ("t", 2)) if fails == "one" else (("t", 2), ("t", 1))
    assert [path.name for path, log_dir in again.dirs.items() if log_dir.offline] == [fails]
    (line,) = [record for record in caplog.records if record.getMessage() == "log directory offline"]
    assert vars(line)["fields"]["log_dir"] == tmp_path / fails
    assert os.strerror(errno.EIO) in vars(line)["fields"]["error"]
    log = again.logs["t", 0]
    assert log.directory == tmp_path / remaining and everything(log) == [b"v"] and again.get(kept) is not None
    assert again.get(lost) is None and lost in again.unopened and kept not in again.unopened
    assert not again.futures.logs
    disk.dead = set()
    again.unlock()
    disk.close()


async def test_a_start_with_no_directory_left_says_which_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = UnlistedDisk()
    manager = manager_of(disk, tmp_path)
    disk.dead = {tmp_path}
    with pytest.raises(StorageError, match="all log directories are offline"):
        await load_logs(disk, manager, RecoveryConfig(), lambda topic: {}, lambda topic, number: None)
    assert [record.getMessage() for record in caplog.records] == ["log directory offline"]
    manager.unlock()
    disk.close()


def test_a_log_that_another_thread_opened_uses_the_files_of_all(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = manager_of(disk, tmp_path)
    manager.load()
    append(manager.create("t", 0, UUID(int=1), {}), batch(b"v"))
    manager.close()
    again = manager_of(disk, tmp_path)
    loader, own = again.begin_load(), FileCache(disk, capacity=1)
    while loader.open_some(tmp_path, own):
        pass
    again.finish_load(loader)
    log = again.get(("t", 0))
    assert log is not None
    assert log.partition_dir.files is log.segments.active.batches.files is again.files
    again.unlock()
    disk.close()


def test_a_log_that_ends_before_its_start_is_made_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    append(log, batch(b"a"), batch(b"b"))
    close_log(log)
    log = home.open(log_start=9)
    assert any("the log end 2 is below its start 9: the log is recreated" in note for note in home.notes)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (9, 9, [9])
    assert append(log, batch(b"c")).base_offset == 9
    assert everything(log) == [b"c"]
    assert [path.name for path in home.directory.glob("*.log")] == [f"{9:020d}.log"]


def test_a_log_whose_disk_dies_while_it_begins_again_is_lost(tmp_path: Path) -> None:
    disk = FailingDisk(errno.EIO)
    manager = manager_of(disk, tmp_path)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {})
    append(log, batch(b"v"))
    disk.dead = {tmp_path}
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)) as caught:
        truncate_fully_and_start_at(log, 5)
    assert caught.value.log_dir == tmp_path
    manager.unlock()
    disk.close()


def test_a_new_log_avoids_directories_that_are_cordoned_or_full(tmp_path: Path) -> None:
    disk, paths = FailingDisk(), [tmp_path / name for name in ("one", "two", "three")]
    manager = manager_of(disk, *paths)
    manager.load()
    manager.dirs[paths[0]].cordoned = True
    manager.dirs[paths[1]].full = True
    numbers = iter(range(9))

    def placed() -> Path:
        return manager.create("t", next(numbers), UUID(int=1), {}).log_dir

    assert [placed() for _ in range(3)] == [paths[2]] * 3
    manager.dirs[paths[1]].full = False
    assert placed() == paths[1]
    for path in paths:
        manager.dirs[path].cordoned = True
    assert placed() == paths[0], "it must lie somewhere"
    manager.unlock()
    disk.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_log_that_cannot_be_made_leaves_nothing_of_a_full_disk(tmp_path: Path, code: int) -> None:
    disk = FailingDisk(code)
    manager = manager_of(disk, tmp_path)
    manager.load()
    disk.dead = {tmp_path}
    with pytest.raises(ApiError if code == errno.ENOSPC else StorageError) as caught:
        manager.create("t", 0, UUID(int=1), {})
    is_refused = isinstance(caught.value, ApiError) and caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert is_refused == (code == errno.ENOSPC)
    assert not (tmp_path / "t-0").exists() and manager.get(("t", 0)) is None
    disk.dead = set()
    append(manager.create("t", 0, UUID(int=1), {}), batch(b"v"))
    manager.unlock()
    disk.close()


def test_a_file_that_cannot_be_removed_takes_its_directory_offline(tmp_path: Path) -> None:
    disk, (one, two) = FixedTreesDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {}, log_dir=one)
    disk.dead = {two}
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)) as new:
        manager.create("t", 1, UUID(int=1), {}, log_dir=two)
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)) as copy:
        manager.futures.create(log, UUID(int=1), two)
    assert new.value.log_dir == copy.value.log_dir == two
    manager.unlock()
    disk.close()


def test_without_descriptors_an_append_is_refused_and_its_log_stays(tmp_path: Path) -> None:
    disk = UnreadableDisk(errno.EMFILE)
    manager = manager_of(disk, tmp_path)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {})
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    manager.files.invalidate(log.segments.active.path)
    disk.dead = {log.directory}
    with pytest.raises(ApiError) as caught:
        append(log, batch(b"c"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.dead = set()
    assert append(log, batch(b"d")).base_offset == 2
    assert everything(log) == [b"a", b"b", b"d"]
    manager.unlock()
    disk.close()


@pytest.mark.parametrize("grows", [True, False])
def test_indexes_that_were_read_while_a_segment_grew_are_read_again(tmp_path: Path, grows: bool) -> None:
    disk = FailingDisk()
    segment = Segment(FileCache(disk), tmp_path, 0, created_ms=0)
    segment.open(create=True)
    segment.write([at(0)])
    segment.indexes.is_loaded = False
    work = segment.indexes.begin_load()
    assert work is not None
    if grows:
        segment.write([at(1, timestamp_ms=NOW_MS + 5)])
    twin = work()
    segment.indexes.install_indexes(twin)
    assert segment.indexes.is_loaded and segment.indexes.max_timestamp_ms == NOW_MS + 5 * grows
    assert (segment.indexes.offsets is twin.offsets) == (not grows)
    disk.close()


def at(offset: int, timestamp_ms: int = NOW_MS) -> bytes:
    data = bytearray(batch(b"v", timestamp_ms=timestamp_ms))
    patch_base_offset(data, offset)
    return bytes(data)


def test_files_that_are_cut_are_closed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(index_interval_bytes=1)
    append(log, *(batch(b"%d" % number) for number in range(9)))
    close_log(log)
    index = home.open(clean=True, index_interval_bytes=1).segments.active.indexes
    index.load()
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        index.offsets.clear()
        index.times.clear()
    assert len(os.listdir("/proc/self/fd")) == count


def test_a_directory_that_fails_has_no_more_logs_to_open(tmp_path: Path) -> None:
    """The start opens no further logs of the directory: each try would wait for the disk again."""
    disk, (one, two) = UnreadableDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    for number in range(4):
        manager.create("t", number, UUID(int=1), {}, log_dir=two if number else one)
    manager.close()
    again = manager_of(disk, one, two)
    loader = again.begin_load()
    disk.dead = {two / "t-1"}
    assert not loader.open_some(two, again.files) and two in loader.failures
    disk.dead = set()
    assert not loader.open_some(two, again.files) and loader.opened == 0
    loader.open_some(one, again.files)
    assert loader.opened == 1
    assert again.finish_load(loader) == 1 and again.unopened == {("t", 1), ("t", 2), ("t", 3)}
    again.unlock()
    disk.close()


def test_a_copy_in_a_directory_that_failed_is_not_taken_over(tmp_path: Path) -> None:
    disk, (one, two) = UnreadableDisk(), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {}, log_dir=one)
    manager.futures.create(log, UUID(int=1), two)
    manager.create("t", 1, UUID(int=1), {}, log_dir=two)
    manager.close()
    disk.dead = {two / "t-1"}
    again = manager_of(disk, one, two)
    assert again.load() == 1 and not again.futures.logs
    assert again.logs["t", 0].log_dir == one
    again.unlock()
    disk.close()


def test_a_replaced_log_on_a_full_disk_outlives_the_other_names(tmp_path: Path) -> None:
    """Nothing can be renamed there, so its files are removed at once."""
    calls: list[tuple[str, Path]] = []

    class Recording(FixedNamesDisk):
        def sync_dir(self, path: Path) -> None:
            calls.append(("sync", path))
            super().sync_dir(path)

        def remove_tree(self, path: Path) -> None:
            calls.append(("remove", path))
            super().remove_tree(path)

    disk, (one, two) = Recording(errno.ENOSPC), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {}, log_dir=one)
    manager.futures.create(log, UUID(int=1), two)
    manager.futures.replace(("t", 0))
    calls.clear()
    disk.dead = {one}
    manager.removal.discard(log, after_names_in=two)
    assert calls == [("sync", two), ("remove", one / "t-0")]
    manager.unlock()
    disk.close()


def test_a_copy_that_cannot_be_made_leaves_nothing_of_a_full_disk(tmp_path: Path) -> None:
    class Full(FailingDisk):
        def is_dead(self, path: Path) -> bool:
            return path.name == "partition.metadata" and path.parents[1] in self.dead

    disk, (one, two) = Full(errno.ENOSPC), (tmp_path / "one", tmp_path / "two")
    manager = manager_of(disk, one, two)
    manager.load()
    log = manager.create("t", 0, UUID(int=1), {}, log_dir=one)
    disk.dead = {two}
    with pytest.raises(ApiError) as caught:
        manager.futures.create(log, UUID(int=1), two)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not [path for path in two.iterdir() if path.is_dir()] and manager.futures.get(("t", 0)) is None
    disk.dead = set()
    assert manager.futures.create(log, UUID(int=1), two).log_dir == two
    manager.unlock()
    disk.close()


def test_indexes_are_read_ahead_where_more_is_wanted_than_the_newest_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(index_interval_bytes=1)
    append(log, *(batch(b"%d" % number) for number in range(9)))
    roll(log, NOW_MS)
    indexes = log.segments[0].indexes
    assert indexes.begin_load() is None, "they are in memory"
    indexes._unload()
    assert indexes.begin_load(newest_only=True) is None, "it is known still"
    work = indexes.begin_load()
    assert work is not None
    indexes.install_indexes(work())
    assert indexes.is_loaded and len(indexes.offsets) == 8


def test_a_start_opens_as_many_logs_as_there_are(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = manager_of(disk, tmp_path)
    manager.load()
    for number in range(2 * LOGS_PER_STEP):
        manager.create("t", number, UUID(int=1), {})
    manager.close()
    again = manager_of(disk, tmp_path)
    assert again.load() == 2 * LOGS_PER_STEP
    again.unlock()
    disk.close()
