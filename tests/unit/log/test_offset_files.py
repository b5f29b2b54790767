"""A checkpoint of offsets in each log directory: when it is written, and that it never says too much."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.log.checkpoints import CLEANED, read_offsets, write_offsets
from odradek.log.compaction.offsets import CleanedOffsets
from odradek.log.log import Log
from odradek.log.offset_files import OffsetFiles
from odradek.log.truncation import truncate_to
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import batch
from tests.unit.log.test_log import Home, append

NAME = "checkpoint"
KEY = ("topic", 0)


class Shelf:
    """Two directories with a log each, and a checkpoint of where they end."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = FailingDisk(errno.ENOSPC)
        self.dirs = tmp_path / "one", tmp_path / "two"
        self.logs = [Home(directory).open() for directory in self.dirs]
        self.logs[1].topic_partition = ("topic", 1)
        self.files = OffsetFiles(self.disk, NAME, lambda log: log.log_end_offset)

    @property
    def first(self) -> Log:
        return self.logs[0]

    def in_file(self, number: int = 0) -> dict[tuple[str, int], int]:
        return read_offsets(self.disk, self.dirs[number] / NAME)

    def write(self) -> bool:
        """Whether there was something to do in the first directory."""
        work = self.files.work(self.dirs[0], self.logs)
        if work is not None:
            work()
        return work is not None


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_file_says_what_is_so_of_the_logs_of_its_directory(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a", b"b"))
    assert shelf.files.written(shelf.dirs[0]) == {}
    assert shelf.write()
    assert shelf.in_file() == shelf.files.written(shelf.dirs[0]) == {KEY: 2}
    assert not shelf.write(), "nothing has changed"
    assert shelf.files.work(shelf.dirs[0], shelf.logs, always=True) is not None
    append(shelf.first, batch(b"c"))
    assert shelf.write() and shelf.in_file() == {KEY: 3}
    assert not (shelf.dirs[1] / NAME).exists()


def test_older_files_are_read_and_damage_is_reported(shelf: Shelf) -> None:
    notes: list[str] = []
    (shelf.dirs[0] / NAME).write_text("0\n1\ntopic 0 7\n")
    (shelf.dirs[1] / NAME).write_text("damaged")
    for directory in shelf.dirs:
        shelf.files.load(directory, notes, "so it is")
    assert shelf.files.written(shelf.dirs[0]) == {KEY: 7} and shelf.files.written(shelf.dirs[1]) == {}
    (note,) = notes
    assert note.endswith("; so it is") and str(shelf.dirs[1]) in note


def test_a_cut_is_in_the_file_before_the_log_may_grow(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a"))
    append(shelf.first, batch(b"b"))
    shelf.write()
    shelf.files.lower(shelf.first, shelf.logs)
    truncate_to(shelf.first, 1)
    shelf.files.lower(shelf.first, shelf.logs)
    assert shelf.in_file() == {KEY: 1}
    append(shelf.first, batch(b"c"))
    shelf.files.lower(shelf.first, shelf.logs)
    assert shelf.in_file() == {KEY: 1}, "a file that says less costs nothing"


def test_a_write_by_another_thread_counts_as_written(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a"))
    append(shelf.first, batch(b"b"))
    work = shelf.files.work(shelf.dirs[0], shelf.logs)
    assert work is not None
    assert (
        shelf.files.max_recorded_offset(KEY, shelf.dirs[0]) == 2
        and shelf.files.max_recorded_offset(KEY, shelf.dirs[1]) == 0
    )
    truncate_to(shelf.first, 1)
    shelf.files.lower(shelf.first, shelf.logs)
    work()
    assert shelf.in_file() == {KEY: 1}, "the work writes what is wanted now"


class HeldMutex:
    """Held by another thread until somebody waits for it."""

    waited = released = 0

    def acquire(self, *, blocking: bool) -> bool:
        self.waited += blocking
        return blocking

    def release(self) -> None:
        self.released += 1


def test_only_what_must_be_written_now_waits_for_another_thread(shelf: Shelf) -> None:
    for value in (b"a", b"b"):
        append(shelf.first, batch(value))
    shelf.files._writing[shelf.dirs[0]] = mutex = HeldMutex()  # type: ignore[assignment]  # it acts as one
    assert shelf.write()
    assert (shelf.in_file(), mutex.waited, mutex.released) == ({}, 0, 0), "the other thread compares at its end"
    for number, write in enumerate(
        (
            shelf.files.work(shelf.dirs[0], shelf.logs, wait=True),
            lambda: shelf.files.write_now(shelf.dirs[0], shelf.logs),
            lambda: shelf.files.lower(shelf.first, shelf.logs),
        ),
        1,
    ):
        assert write is not None
        write()
        assert (shelf.in_file(), mutex.waited, mutex.released) == ({KEY: 3 - number}, number, number)
        if number < 3:
            truncate_to(shelf.first, 2 - number)


def test_a_log_that_is_recreated_is_not_in_the_file(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a"))
    shelf.write()
    shelf.files.remove(("other", 0), shelf.dirs[0], [])
    assert shelf.in_file() == {KEY: 1}
    shelf.files.remove(KEY, shelf.dirs[0], shelf.logs)
    assert shelf.in_file() == {} and shelf.files.max_recorded_offset(KEY, shelf.dirs[0]) == 0


def test_a_full_disk_leaves_the_file_and_refuses_what_it_would_hide(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a"))
    shelf.write()
    assert not shelf.files.has_unwritten(shelf.dirs[0])
    shelf.disk.dead.add(shelf.dirs[0])
    append(shelf.first, batch(b"b"))
    assert shelf.write()
    assert shelf.in_file() == {KEY: 1} and shelf.files.has_unwritten(shelf.dirs[0])
    with pytest.raises(ApiError) as refused:
        shelf.files.remove(KEY, shelf.dirs[0], shelf.logs)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    shelf.disk.dead.clear()
    assert shelf.write() and shelf.in_file() == {KEY: 2}


def test_a_disk_that_fails_takes_its_directory_with_it(shelf: Shelf) -> None:
    append(shelf.first, batch(b"a"))
    shelf.disk.code = errno.EIO
    shelf.disk.dead.add(shelf.dirs[0])
    for _ in range(2):
        with pytest.raises(StorageError, match=NAME) as failed:
            shelf.files.write_now(shelf.dirs[0], shelf.logs)
        assert failed.value.log_dir == shelf.dirs[0]
    shelf.disk.dead.clear()
    shelf.files.write_now(shelf.dirs[0], shelf.logs)
    assert shelf.in_file() == {KEY: 1}, "the write before has let go of the file"


@pytest.mark.parametrize(("noted", "cleaned"), [(1, 1), (3, 3), (9, 3)])
def test_a_log_that_lost_its_end_was_compacted_up_to_there(shelf: Shelf, noted: int, cleaned: int) -> None:
    """A failback asks whether it ever was (ADR 0021)."""
    log = shelf.first
    append(log, batch(b"a", b"b", b"c"))
    write_offsets(shelf.disk, log.log_dir / CLEANED, {log.topic_partition: noted})
    offsets = CleanedOffsets(shelf.disk)
    offsets.load(log.log_dir, [])
    offsets.restore(log)
    assert log.cleaned_offset == cleaned


def test_without_space_a_log_is_not_compacted_for_the_first_time(shelf: Shelf) -> None:
    """Its next start would not know that records of it may lack."""
    log = shelf.first
    append(log, batch(b"a"))
    offsets = CleanedOffsets(shelf.disk)
    log.cleaned_offset = 1
    shelf.disk.dead.add(log.log_dir)
    with pytest.raises(ApiError) as refused:
        offsets.required(log.log_dir, shelf.logs)()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    shelf.disk.dead.clear()
    offsets.required(log.log_dir, shelf.logs)()
    assert read_offsets(shelf.disk, log.log_dir / CLEANED) == {log.topic_partition: 1}
    offsets.required(log.log_dir, shelf.logs)()
