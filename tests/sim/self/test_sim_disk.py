"""A power loss keeps all bytes that were synced, and any part of the others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common.ports import make_dirs_durably, read_file, write_file_durably
from odradek.record.batch import HEADER_BYTES
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.disk import SECTOR_BYTES, DiskFaults, SimDisk
from tests.sim.loop import SimLoop

HOME = Path("/data")


def new_disk(seed: int = 0, **faults: Any) -> SimDisk:
    disk = SimDisk(Random(seed), DiskFaults(**faults), lambda: 0)
    make_dirs_durably(disk, HOME)
    return disk


def test_synced_bytes_survive_under_every_seed_and_others_vary() -> None:
    lengths = set()
    for seed in range(200):
        disk = new_disk(seed)
        file = disk.open(HOME / "log", create=True)
        file.write_at(0, [b"s" * 1000])
        file.sync()
        disk.sync_dir(HOME)
        for number in range(4):
            file.write_at(1000 + number * 1000, [b"u" * 1000])
        disk.lose_power()
        data = read_file(disk, HOME / "log")
        assert data.startswith(b"s" * 1000)
        lengths.add(len(data))
        assert set(data[1000:]) <= {ord("u"), 0}
    assert {1000, 5000} <= lengths
    assert any(length % SECTOR_BYTES == 0 for length in lengths - {1000, 5000}), "no write was torn at a sector"


def test_a_name_is_durable_only_after_its_directory_was_synced() -> None:
    survived = set()
    for seed in range(50):
        disk = new_disk(seed)
        file = disk.open(HOME / "new", create=True)
        file.write_at(0, [b"x"])
        file.sync()
        disk.lose_power()
        survived.add(disk.exists(HOME / "new"))
    assert survived == {True, False}


def test_a_rename_takes_both_names_or_neither() -> None:
    for seed in range(50):
        disk = new_disk(seed)
        write_file_durably(disk, HOME / "a", b"1")
        disk.rename(HOME / "a", HOME / "b")
        disk.lose_power()
        assert disk.exists(HOME / "a") != disk.exists(HOME / "b")


def test_write_file_durably_leaves_the_old_or_the_new_bytes_at_any_crash() -> None:
    """A crash is simulated before each step of the replacement by a disk that dies at its n-th operation."""

    class DiedError(Exception):
        pass

    for step in range(8):
        for seed in range(20):
            disk = new_disk(seed)
            write_file_durably(disk, HOME / "state", b"old" * 300)
            left = step

            def dies(fault: str, rate: float) -> bool:
                nonlocal left
                left -= 1
                if left < 0:
                    raise DiedError
                return False

            disk.hit = dies  # type: ignore[method-assign]  # the test replaces it
            with contextlib.suppress(DiedError):
                write_file_durably(disk, HOME / "state", b"new" * 300)
            del disk.hit
            disk.lose_power()
            assert read_file(disk, HOME / "state") in (b"old" * 300, b"new" * 300)


def test_after_a_failed_sync_readers_see_bytes_that_a_power_loss_takes() -> None:
    disk = new_disk()
    file = disk.open(HOME / "log", create=True)
    disk.sync_dir(HOME)
    file.write_at(0, [b"doomed"])
    disk.faults = DiskFaults(sync_error=1.0)
    with pytest.raises(OSError, match="fsync"):
        file.sync()
    disk.faults = DiskFaults()
    file.sync()
    assert file.read_at(0, 6) == b"doomed"
    disk.lose_power()
    assert read_file(disk, HOME / "log") == b""


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = new_disk()
    disk.faults.capacity_bytes = 100
    file = disk.open(HOME / "log", create=True)
    file.write_at(0, [b"x" * 90])
    with pytest.raises(OSError, match="full"):
        file.write_at(90, [b"y" * 20])
    assert file.size() == 100


def test_kill_keeps_the_page_cache_but_no_lock_and_no_descriptor() -> None:
    disk = new_disk()
    file = disk.open(HOME / "log", create=True)
    file.write_at(0, [b"kept"])
    disk.lock(HOME / ".lock")
    with pytest.raises(BlockingIOError):
        disk.lock(HOME / ".lock")
    disk.process_died()
    disk.lock(HOME / ".lock")
    with pytest.raises(OSError, match="died"):
        file.read_at(0, 4)
    assert read_file(disk, HOME / "log") == b"kept"


def test_flipped_bits_damage_what_is_read_not_what_is_stored() -> None:
    disk = new_disk(3, flipped_bit=1.0)
    file = disk.open(HOME / "log", create=True)
    file.write_at(0, [bytes(100)])
    assert sum(byte.bit_count() for byte in file.read_at(0, 100)) == 1
    disk.faults = DiskFaults()
    assert file.read_at(0, 100) == bytes(100)


def test_a_directory_is_durable_only_after_the_one_above_it_was_synced() -> None:
    for durably in (False, True):
        survived = set()
        for seed in range(50):
            disk = new_disk(seed)
            disk.make_dirs(HOME / "kept-0")
            if durably:
                disk.sync_dir(HOME)
            write_file_durably(disk, HOME / "kept-0" / "log", b"kept")
            disk.lose_power()
            survived.add(disk.exists(HOME / "kept-0" / "log"))
            assert disk.is_dir(HOME / "kept-0") == disk.exists(HOME / "kept-0" / "log"), "all of it or nothing"
        assert survived == ({True} if durably else {True, False})


def test_directories_made_durably_survive_with_all_their_parents() -> None:
    deep = HOME / "a" / "b" / "c"
    for seed in range(50):
        disk = new_disk(seed)
        make_dirs_durably(disk, deep)
        disk.lose_power()
        assert disk.is_dir(deep)


def test_a_renamed_directory_has_one_name_and_its_durable_files() -> None:
    names = set()
    for seed in range(50):
        disk = new_disk(seed)
        make_dirs_durably(disk, HOME / "kept-0")
        write_file_durably(disk, HOME / "kept-0" / "log", b"kept")
        disk.rename(HOME / "kept-0", HOME / "gone-0")
        assert read_file(disk, HOME / "gone-0" / "log") == b"kept"
        disk.lose_power()
        (name,) = disk.list_dir(HOME)
        assert read_file(disk, HOME / name / "log") == b"kept"
        names.add(name)
    assert names == {"kept-0", "gone-0"}


def test_a_directory_that_was_removed_may_come_back_with_some_of_its_files() -> None:
    left = set()
    for seed in range(200):
        disk = new_disk(seed)
        make_dirs_durably(disk, HOME / "old-0")
        for name in ("1", "2", "3"):
            write_file_durably(disk, HOME / "old-0" / name, b"x")
        disk.remove_tree(HOME / "old-0")
        assert not disk.exists(HOME / "old-0")
        disk.lose_power()
        left.add(len(disk.list_dir(HOME / "old-0")) if disk.is_dir(HOME / "old-0") else None)
    assert left == {None, 0, 1, 2, 3}


def test_names_of_two_directories_survive_by_themselves() -> None:
    """A later change of one directory may be kept though an earlier one of another is lost."""
    survived = set()
    for seed in range(300):
        disk = new_disk(seed)
        for directory in ("a", "b"):
            make_dirs_durably(disk, HOME / directory)
        for directory in ("a", "b"):
            disk.open(HOME / directory / "new", create=True)
        disk.lose_power()
        survived.add((disk.exists(HOME / "a" / "new"), disk.exists(HOME / "b" / "new")))
    assert len(survived) == 4


def test_a_name_may_be_kept_without_its_bytes_and_bytes_without_their_name() -> None:
    seen = set()
    for seed in range(200):
        disk = new_disk(seed)
        write_file_durably(disk, HOME / "state", b"old")
        file = disk.open(HOME / "state.new", create=True)
        file.write_at(0, [b"new"])
        if seed % 2:
            file.sync()
        disk.rename(HOME / "state.new", HOME / "state")
        disk.lose_power()
        seen.add((seed % 2 == 1, read_file(disk, HOME / "state")))
    assert {(False, b""), (False, b"new"), (True, b"old"), (True, b"new")} <= seen
    assert (True, b"") not in seen


@pytest.mark.parametrize("fault", ["rename_error", "truncate_error", "sync_dir_error", "read_error", "write_error"])
def test_injected_errors_are_raised_and_counted(fault: str) -> None:
    disk = new_disk()
    file = disk.open(HOME / "a", create=True)
    file.write_at(0, [b"12345678"])
    steps: dict[str, Callable[[], object]] = {
        "rename_error": lambda: disk.rename(HOME / "a", HOME / "b"),
        "truncate_error": lambda: file.truncate(4),
        "sync_dir_error": lambda: disk.sync_dir(HOME),
        "read_error": lambda: file.read_at(0, 8),
        "write_error": lambda: file.write_at(8, [b"9"]),
    }
    disk.faults = DiskFaults(**{fault: 1.0})  # type: ignore[arg-type]  # each field is a float
    with pytest.raises(OSError, match="simulated") as caught:
        steps[fault]()
    assert caught.value.errno == errno.EIO
    assert sum(disk.injected.values()) == 1
    disk.faults = DiskFaults()
    assert disk.list_dir(HOME) == ["a"]
    assert file.read_at(0, 8) == b"12345678"


@pytest.mark.parametrize("dropped", [True, False])
def test_a_sync_after_a_failed_one_keeps_names_that_were_not_dropped(dropped: bool) -> None:
    disk = new_disk()
    disk.open(HOME / "new", create=True)
    disk.faults = DiskFaults(sync_dir_error=1.0, names_are_dropped=dropped)
    with pytest.raises(OSError, match="directory"):
        disk.sync_dir(HOME)
    disk.faults = DiskFaults()
    disk.sync_dir(HOME)
    assert disk.exists(HOME / "new")
    disk.lose_power()
    assert disk.exists(HOME / "new") != dropped


def test_a_short_write_is_gone_on_with_and_may_be_torn_where_it_was_short() -> None:
    lengths = set()
    for seed in range(300):
        disk = new_disk(seed)
        file = disk.open(HOME / "log", create=True)
        disk.sync_dir(HOME)
        disk.faults = DiskFaults(short_write=1.0)
        assert file.write_at(0, [b"s" * 300]) == 300
        assert file.read_at(0, 300) == b"s" * 300
        disk.lose_power()
        lengths.add(len(read_file(disk, HOME / "log")))
    assert any(0 < length < 300 for length in lengths), "a part that is no sector"


def test_flipped_bits_may_be_kept_to_what_has_a_checksum() -> None:
    batches = [build_batch([Record(None, b"%d" % number * 50, timestamp_ms=0)]) for number in range(3)]
    data = b"".join(batches)
    headers = [range(start, start + HEADER_BYTES) for start in (0, len(batches[0]), 2 * len(batches[0]))]
    flipped = set()
    for seed in range(300):
        disk = new_disk(seed, flipped_bit=1.0, flips_records=True)
        for name in ("0.log", "checkpoint"):
            disk.open(HOME / name, create=True).write_at(0, [data])
        assert read_file(disk, HOME / "checkpoint") == data
        position = seed % len(data)
        read = disk.open(HOME / "0.log").read_at(position, 100)
        different = [place for place, byte in enumerate(read, position) if byte != data[place]]
        assert len(different) <= 1
        flipped.update(different)
    assert len(flipped) > 100
    assert not any(place in header for place in flipped for header in headers)


def test_an_older_disk_has_what_it_had_and_nothing_that_came_since() -> None:
    disk = new_disk()
    make_dirs_durably(disk, HOME / "kept-0")
    write_file_durably(disk, HOME / "kept-0" / "log", b"before")
    make_dirs_durably(disk, HOME / "empty-0")
    files, directories = disk.snapshot(), disk.directories()
    write_file_durably(disk, HOME / "kept-0" / "log", b"after")
    write_file_durably(disk, HOME / "more", b"more")
    disk.restore(files, directories)
    assert (read_file(disk, HOME / "kept-0" / "log"), disk.exists(HOME / "more")) == (b"before", False)
    assert disk.is_dir(HOME / "empty-0")
    disk.lose_power()
    assert read_file(disk, HOME / "kept-0" / "log") == b"before"


def test_work_off_the_loop_completes_without_its_caller() -> None:
    loop = SimLoop(Random(1))
    disk = new_disk()
    done: list[int] = []

    async def scenario() -> None:
        task = loop.spawn("a", disk.run_blocking(lambda: done.append(1)))
        await asyncio.sleep(0.00001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [1]

    with loop:
        loop.run_world(scenario(), limit_s=10)
