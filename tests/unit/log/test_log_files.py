"""Walks over the batches of a file, and slices of it that are sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.compaction.batches import empty_batch
from odradek.log.files import FileCache, FileSlice, SharedFile, raw_batches, remove_now
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.verification import Damage, check_batches
from odradek.record.batch import HEADER_BYTES
from tests.support.models.batches import batch, header_of

ONE, OTHER = batch(b"a"), batch(b"b", b"c")
OFFSET_END_AT = 7
MAGIC_AT = 16


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk(workers=1)
    yield made
    made.close()


def with_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


AT_ONE = with_byte(OTHER, OFFSET_END_AT, 1)


@pytest.mark.parametrize(
    ("tail", "walked"),
    [
        (b"", 2),
        (OTHER, 3),
        (OTHER[:-1], 2),
        (OTHER[: HEADER_BYTES - 1], 2),
        (bytes(200), 2),
        (with_byte(OTHER, MAGIC_AT, 1), 2),
        (with_byte(OTHER, 11, HEADER_BYTES - 13), 2),
        (bytes(empty_batch(header_of(OTHER))), 3),
    ],
    ids=[
        "nothing",
        "one more",
        "half of one",
        "half of a header",
        "zeros",
        "an older format",
        "no length",
        "no records",
    ],
)
def test_a_walk_ends_at_what_is_no_whole_batch(disk: RealDisk, tmp_path: Path, tail: bytes, walked: int) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(ONE + OTHER + tail)
    shared = SharedFile(disk.open(path))
    size = path.stat().st_size
    found = [(position, header.size_bytes) for position, header in raw_batches(shared.file, 0, size)]
    assert found == [(0, len(ONE)), (len(ONE), len(OTHER)), (len(ONE) + len(OTHER), len(tail))][:walked]
    up_to = [position for position, _ in raw_batches(shared.file, 0, len(ONE) + len(OTHER) - 1)]
    assert up_to == [0], "what ends behind the end is not whole"
    assert [position for position, _ in raw_batches(shared.file, len(ONE), len(ONE) + len(OTHER))] == [len(ONE)]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (with_byte(AT_ONE, len(OTHER) - 1, 0xFF), "the checksum does not match"),
        (with_byte(AT_ONE, MAGIC_AT, 1), "no whole batch"),
        (OTHER, "offset 0 follows 0"),
        (with_byte(AT_ONE, 3, 1), f"offset {(1 << 32) + 1} follows 0"),
    ],
    ids=["checksum", "magic", "offset before", "offset too far"],
)
def test_a_verification_ends_at_the_first_damage(disk: RealDisk, tmp_path: Path, damaged: bytes, reason: str) -> None:
    """Though a whole batch follows the damaged one."""
    segment_path(tmp_path, 0, ".log").write_bytes(ONE + damaged + with_byte(ONE, OFFSET_END_AT, 3))
    segment = Segment(FileCache(disk), tmp_path, 0, created_ms=0)
    segment.open()
    whole, damage = check_batches(segment, expected_offset=0)
    assert not isinstance(whole, Damage) and (whole[1].base_offset, whole[2]) == (0, ONE)
    assert isinstance(damage, Damage) and damage.position == len(ONE) and damage.reason.startswith(reason)


def test_a_slice_is_a_part_of_its_file(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(ONE + OTHER)
    part = FileSlice(SharedFile(disk.open(path)), len(ONE), len(OTHER))
    assert (part.read(), len(part), part.file.path) == (OTHER, len(OTHER), path)


def test_files_of_a_log_without_a_manager_are_removed_at_once(disk: RealDisk, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("0.log.deleted", "0.index.deleted", "9.log")]
    for path in paths:
        path.write_bytes(ONE)
    remove_now(disk, paths[:2], 60_000)
    assert [path.exists() for path in paths] == [False, False, True]
