"""The open files of a broker: how many stay open, which are closed first, and what happens without a descriptor."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.common.ports import Buffer, Disk, File
from odradek.log.files import MAX_LOADED_INDEXES, MAX_OPEN_FILES, FileCache, SharedFile, make_durable, rename_deleted

ROOT = Path("/data/t-0")


class KnownFile:
    """A file that is open until it is closed."""

    def __init__(self, disk: KnownDisk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        self._disk.synced.append(self.path.name)

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        return sum(map(len, chunks))

    def close(self) -> None:
        self._disk.open_files.remove(self.path.name)


class KnownDisk:
    """Any file exists that is not `missing`; `errors` are raised by the next calls of `open`."""

    def __init__(self) -> None:
        self.open_files: list[str] = []
        self.synced: list[str] = []
        self.created: list[str] = []
        self.missing: set[str] = set()
        self.errors: list[int] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        if self.errors:
            code = self.errors.pop(0)
            raise OSError(code, os.strerror(code))
        if create:
            self.created.append(path.name)
        elif path.name in self.missing:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self.open_files.append(path.name)
        return cast("File", KnownFile(self, path))

    def sync_dir(self, path: Path) -> None:
        self.synced.append(f"{path.name}/")

    def rename(self, source: Path, target: Path) -> None:
        if source.name in self.missing:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self.synced.append(target.name)


@pytest.fixture
def disk() -> KnownDisk:
    return KnownDisk()


def cache_of(disk: KnownDisk, **more: Any) -> FileCache:
    return FileCache(cast("Disk", disk), **more)


def test_the_least_recently_used_file_is_closed_first(disk: KnownDisk) -> None:
    cache = cache_of(disk, capacity=3)
    for name in ("a", "b", "c", "a", "d", "e"):
        cache.get(ROOT / name)
    assert disk.open_files == ["a", "d", "e"]
    held = cache.get(ROOT / "a")
    for name in ("b", "c", "d"):
        cache.get(ROOT / name)
    assert disk.open_files == ["a", "b", "c", "d"], "what is held stays open"
    assert cache.get(ROOT / "b") is cache.get(ROOT / "b")
    del held
    assert disk.open_files == ["b", "c", "d"]


def test_a_broker_keeps_256_files_and_64_loaded_indexes(disk: KnownDisk) -> None:
    cache, unloaded = cache_of(disk), list[int]()
    for number in range(MAX_OPEN_FILES + 1):
        cache.get(ROOT / str(number))
    assert disk.open_files == [str(number) for number in range(1, 257)]
    for number in range(MAX_LOADED_INDEXES + 1):
        cache.cache_indexes(ROOT / str(number), partial(unloaded.append, number))
    cache.cache_indexes(ROOT / "1", partial(unloaded.append, 1))
    cache.cache_indexes(ROOT / "65", partial(unloaded.append, 65))
    assert (unloaded, MAX_LOADED_INDEXES) == ([0, 2], 64), "1 was used again"


def test_a_missing_file_is_not_created_unless_asked(disk: KnownDisk) -> None:
    disk.missing.add("a")
    cache = cache_of(disk)
    with pytest.raises(FileNotFoundError):
        cache.get(ROOT / "a")
    assert disk.created == []
    cache.get(ROOT / "a", create=True)
    assert disk.created == ["a"]


def test_files_in_the_cache_give_way_where_no_descriptor_is_free(disk: KnownDisk) -> None:
    cache = cache_of(disk)
    for code in (errno.EMFILE, errno.ENFILE):
        with pytest.raises(OSError, match="oo many open files"):
            disk.errors = [code]
            cache.get(ROOT / "a")
        cache.get(ROOT / "b")
        cache.get(ROOT / "c")
        disk.errors = [code]
        cache.get(ROOT / "a", create=True)
        assert (disk.open_files, disk.created) == (["a"], ["a"])
        disk.errors = [code, code]
        with pytest.raises(OSError, match="oo many open files"):
            cache.get(ROOT / "b")
        assert disk.open_files == []
        disk.created.clear()
    cache.get(ROOT / "b")
    disk.errors = [errno.EIO]
    with pytest.raises(OSError, match="nput/output error"):
        cache.get(ROOT / "a")
    assert disk.open_files == ["b"], "another error closes nothing"


def test_only_a_full_disk_is_reported(disk: KnownDisk) -> None:
    cache, full = cache_of(disk), list[Path]()
    cache.on_no_space = full.append
    errors = [cache.no_space(ROOT, OSError(code, "")) for code in (errno.EMFILE, errno.ENOSPC)]
    assert full == [ROOT]
    assert all("No space left on the device of /data/t-0, or no descriptor" in error.message for error in errors)


def test_files_and_indexes_of_a_directory_leave_the_cache(disk: KnownDisk) -> None:
    cache, unloaded = cache_of(disk), list[str]()
    paths = [ROOT / "a", ROOT / "b", ROOT.with_name("t-01") / "c"]
    for path in paths:
        cache.get(path)
        cache.cache_indexes(path, partial(unloaded.append, path.name))
    cache.invalidate(paths[0])
    cache.invalidate(paths[0])
    assert disk.open_files == ["b", "c"]
    cache.invalidate_below(ROOT)
    assert disk.open_files == ["c"]
    for number in range(MAX_LOADED_INDEXES):
        cache.cache_indexes(ROOT / str(number), lambda: None)
    assert unloaded == ["c"], "those of files that have left are not unloaded"


def test_files_are_synced_before_the_names_of_others(disk: KnownDisk) -> None:
    held = [SharedFile(disk.open(ROOT / "held"))]
    disk.missing.add("gone")
    make_durable(cast("Disk", disk), held, [ROOT / "gone", ROOT / "a"], [ROOT])
    assert (disk.synced, disk.open_files) == (["held", "a", "t-0/"], ["held"])


@pytest.mark.parametrize("count", range(4))
def test_a_flush_ends_before_the_file_at_which_its_log_has_left(disk: KnownDisk, count: int) -> None:
    held = [SharedFile(disk.open(ROOT / name)) for name in "ab"]
    asked: list[bool] = []

    def is_over() -> bool:
        asked.append(len(asked) >= count)
        return asked[-1]

    make_durable(cast("Disk", disk), held, [ROOT / "c", ROOT / "d"], [ROOT], is_over)
    assert disk.synced == list("abcd")[:count]


def test_files_that_are_missing_are_not_renamed(disk: KnownDisk) -> None:
    disk.missing = {"b"}
    renamed = rename_deleted(cast("Disk", disk), [ROOT / name for name in "abc"])
    assert renamed == [ROOT / "a.deleted", ROOT / "c.deleted"]
    assert disk.synced == ["a.deleted", "c.deleted"]
