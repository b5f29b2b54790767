"""Walks over the batches of a file, and slices of it that are sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.compaction.batches import empty_batch
from odradek.log.files import FileSlice, SharedFile, raw_batches
from odradek.record.batch import HEADER_BYTES
from tests.support.models.batches import batch, header_of

ONE, OTHER = batch(b"a"), batch(b"b", b"c")
MAGIC_AT = 16


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk(workers=1)
    yield made
    made.close()


def with_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


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


def test_a_slice_is_a_part_of_its_file(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(ONE + OTHER)
    part = FileSlice(SharedFile(disk.open(path)), len(ONE), len(OTHER))
    assert (part.read(), len(part), part.file.path) == (OTHER, len(OTHER), path)
