"""Log directories: the files of the last stop, full directories, and names that are in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Disk
from odradek.log.dir_names import future_name
from odradek.log.files import FileCache
from odradek.log.log_dir import LogDir
from odradek.log.partition_dir import PartitionDir
from odradek.log.space import DirectorySpace
from odradek.log.stray import free_name, rename_stray
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.disks.failing import FailingDisk

BITS = 0xAB
MARK = ".000000000000000000000000000000ab-stray"


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(errno.ENOSPC)


# -- what the last stop left -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "clean", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":42}', True, 42),
        (b"", True, -1),
        (b"{}", True, -1),
        (b"[]", True, -1),
        (b'{"brokerEpoch":null}', True, -1),
        (b"\xff", True, -1),
        (None, False, -1),
    ],
)
def test_a_mark_says_that_a_stop_was_in_good_order(
    disk: FailingDisk, tmp_path: Path, mark: bytes | None, clean: bool, epoch: int
) -> None:
    if mark is not None:
        (tmp_path / ".kafka_cleanshutdown").write_bytes(mark)
    (tmp_path / "space.tmp").write_bytes(b"x")
    directory = LogDir(tmp_path)
    assert not directory.offline and LogDir(tmp_path, error="gone").offline
    recovery, start, watermark = {("t", 0): 1}, {("t", 0): 2}, {("t", 0): 3}
    directory.open(disk, recovery, start, watermark)
    assert (directory.clean_shutdown, directory.clean_broker_epoch) == (clean, epoch)
    assert directory.checkpointed_recovery is recovery
    assert (directory.checkpointed_start, directory.checkpointed_watermark) == (start, watermark)
    assert not list(tmp_path.iterdir()), "a crash from here on finds no mark"


@pytest.mark.parametrize("seed", range(8))
def test_without_power_the_mark_does_not_come_back(seed: int) -> None:
    disk = SimDisk(Random(seed), DiskFaults(), lambda: 0)
    path = Path("/data")
    disk.make_dirs(path)
    disk.sync_dir(path.parent)
    LogDir(path).mark_clean(disk, 42)
    first, second = LogDir(path), LogDir(path)
    first.open(disk, {}, {}, {})
    assert first.clean_shutdown
    disk.lose_power()
    second.open(disk, {}, {}, {})
    assert not second.clean_shutdown, "the log was open when the power went"


# -- work for other threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_detached", [False, True], ids=["there", "left"])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EIO, "input/output error"), "t-0: [Errno 5] input/output error"),
        (StorageError(Path("/data"), "the footer is gone"), "the footer is gone"),
    ],
    ids=["of the system", "of the log"],
)
def test_work_that_fails_is_a_fault_of_the_disk_unless_the_log_has_left(
    disk: FailingDisk, tmp_path: Path, error: Exception, says: str, is_detached: bool
) -> None:
    (tmp_path / "t-0").mkdir()
    directory = PartitionDir(FileCache(disk), tmp_path / "t-0")

    def fails(held: Disk) -> None:
        raise error

    work = directory.work(fails)
    directory.is_detached = is_detached
    if is_detached:
        assert work() is None
    else:
        with pytest.raises(StorageError) as caught:
            work()
        assert str(caught.value).endswith(says)
        assert (caught.value is error) == isinstance(error, StorageError)


# -- full directories ------------------------------------------------------------------------------------------------


def test_a_full_directory_is_said_once_and_once_that_it_has_space(disk: FailingDisk, tmp_path: Path) -> None:
    one, two, gone = (LogDir(tmp_path / name) for name in ("one", "two", "gone"))
    gone.error = "its disk failed"
    space = DirectorySpace(disk, {each.path: each for each in (one, two, gone)})
    changes: list[list[Path]] = []
    space.on_disk_full(one.path)
    space.on_space_available(one)  # without a listener nothing else happens
    space.subscribe(lambda: changes.append(space.full_paths()))
    for path in (one.path, one.path, gone.path, tmp_path / "no log directory"):
        space.on_disk_full(path)
    assert (changes, space.full()) == ([[one.path]], [one])
    space.on_disk_full(two.path)
    assert space.full() == [one, two] and space.full_paths() == [one.path, two.path]
    two.error = "its disk failed too"
    assert space.full() == [one], "that one is not tried again"
    space.on_space_available(one)
    assert changes == [[one.path], [one.path, two.path], [two.path]]


def test_space_is_tried_with_a_file_that_does_not_stay(disk: FailingDisk, tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "one")
    directory.path.mkdir()
    work = DirectorySpace(disk, {}).probe(directory)
    assert work() is True
    disk.dead.add(directory.path)
    assert work() is False
    disk.code = errno.EIO
    with pytest.raises(StorageError, match=r"space\.tmp") as failed:
        work()
    assert failed.value.log_dir == directory.path
    assert not list(directory.path.iterdir())


# -- names in the way ------------------------------------------------------------------------------------------------


def test_a_directory_that_holds_something_gets_another_name(disk: FailingDisk, tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "file").write_bytes(b"kept")
    rename_stray(disk, tmp_path / "topic-0", BITS)
    assert [each.name for each in tmp_path.iterdir()] == ["topic-0" + MARK]
    assert (tmp_path / ("topic-0" + MARK) / "file").read_bytes() == b"kept"


def test_a_long_name_is_cut_for_the_mark(disk: FailingDisk, tmp_path: Path) -> None:
    (tmp_path / ("t" * 249 + "-0")).mkdir()
    (tmp_path / ("t" * 249 + "-0") / "file").write_bytes(b"")
    rename_stray(disk, tmp_path / ("t" * 249 + "-0"), BITS)
    (name,) = (each.name for each in tmp_path.iterdir())
    assert name == "t" * (255 - len(MARK)) + MARK


def test_a_future_log_has_the_whole_name_of_its_topic_or_is_refused() -> None:
    mark = "-0.000000000000000000000000000000ab-future"
    assert future_name("t" * (255 - len(mark)), 0, BITS) == "t" * (255 - len(mark)) + mark
    with pytest.raises(ApiError, match="too long a name") as error:
        future_name("t" * (256 - len(mark)), 0, BITS)
    assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_missing_empty_and_foreign_paths_keep_their_names(disk: FailingDisk, tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-1").write_bytes(b"a file")
    for name in ("topic-0", "topic-1", "topic-2"):
        rename_stray(disk, tmp_path / name, BITS)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["topic-0", "topic-1"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_name_that_cannot_be_freed_is_a_full_disk_or_a_failed_one(tmp_path: Path, code: int) -> None:
    class NoRename(FailingDisk):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(code, os.strerror(code))

    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / "file").write_bytes(b"")
    files = FileCache(NoRename())
    full: list[Path] = []
    files.on_no_space = full.append
    if code == errno.ENOSPC:
        with pytest.raises(ApiError) as refused:
            free_name(files, directory, BITS)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR and full == [tmp_path]
    else:
        with pytest.raises(StorageError, match="topic-0") as failed:
            free_name(files, directory, BITS)
        assert failed.value.log_dir == tmp_path and not full
