"""What a power loss keeps: all that was synced, any part of what was not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from odradek.common.ports import read_file, write_file_durably
from tests.sim.disk import SECTOR_BYTES, DiskFaults, SimDisk

HOME = Path("/data")


def new_disk(seed: int = 0, **faults: float) -> SimDisk:
    disk = SimDisk(Random(seed), DiskFaults(**faults), lambda: 0)  # type: ignore[arg-type]
    disk.make_dirs(HOME)
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

            disk.hit = dies  # type: ignore[method-assign]
            with contextlib.suppress(DiedError):
                write_file_durably(disk, HOME / "state", b"new" * 300)
            del disk.hit  # type: ignore[attr-defined]
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
