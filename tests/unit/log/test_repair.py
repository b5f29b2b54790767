"""The batches of another replica's response that fit a hole, and the segment that is rewritten around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.log import Log
from odradek.log.repair import CorruptRange, find_hole, install, matching_batches, rewrite_batches
from odradek.log.replicated import Batch
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions
from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, patch_base_offset, patch_leader_epoch
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append, everything
from tests.unit.log.test_log_transactions import marker, sent

COMPACTED = ("compact",)
SIZE = len(batch(b"0"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def filled(home: Home, *, compacted: bool = False) -> Log:
    log = home.open(cleanup_policy=COMPACTED if compacted else ("delete",))
    for number in range(5):
        append(log, batch(b"%d" % number), epoch=1)
    return log


def at(offset: int, *values: bytes, epoch: int = 1) -> bytes:
    data = bytearray(batch(*(values or (b"%d" % offset,))))
    patch_base_offset(data, offset)
    patch_leader_epoch(data, epoch)
    return bytes(data)


def hole_of(log: Log, first: int = 1, end: int = 3) -> CorruptRange:
    return CorruptRange(log.segments[0], first * SIZE, end * SIZE, first, end, is_open=False)


@pytest.mark.parametrize(
    ("compacted", "answer", "fits", "is_full"),
    [
        (False, at(1) + at(2), [1, 2], True),
        (False, at(1) + at(2) + at(3), [1, 2], True),
        (False, at(1), [1], False),
        (False, b"", [], False),
        (True, at(2), [2], True),
        (True, at(1), [1], False),
        (True, at(1) + at(4), [1], True),
        (True, at(3), [], True),
    ],
)
def test_a_repair_takes_the_batches_that_fit_the_hole(
    home: Home, compacted: bool, answer: bytes, fits: list[int], is_full: bool
) -> None:
    log = filled(home, compacted=compacted)
    batches, found_full = matching_batches(log, hole_of(log), answer)
    assert ([header.base_offset for _, header in batches], found_full) == (fits, is_full)


@pytest.mark.parametrize(
    ("compacted", "answer", "why"),
    [
        (False, at(2), "offsets 2 to 2, expected 1"),
        (False, at(0, b"0", b"1"), "offsets 0 to 1, expected 1"),
        (True, at(0, b"0", b"1"), "offsets 0 to 1, expected 1"),
        (True, at(2, b"2", b"3"), "offsets 2 to 3, expected 1"),
        (False, at(1, b"1", b"2", b"3"), "offsets 1 to 3, expected 1"),
        (False, at(1, epoch=2), "leader epoch 2, expected 1"),
        (True, at(1, epoch=0), "leader epoch 0, expected 1"),
    ],
)
def test_batches_of_a_diverging_replica_do_not_fit(home: Home, compacted: bool, answer: bytes, why: str) -> None:
    log = filled(home, compacted=compacted)
    with pytest.raises(ApiError, match=why) as caught:
        matching_batches(log, hole_of(log), answer)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("damaged", "given", "left"),
    [
        ([2], [at(2, b"another")], [b"0", b"1", b"another", b"3", b"4"]),
        ([2], [], [b"0", b"1", b"3", b"4"]),
        ([4], [at(4, b"another")], [b"0", b"1", b"2", b"3", b"another"]),
        ([3, 4], [], [b"0", b"1", b"2"]),
    ],
)
def test_a_segment_is_rewritten_around_a_hole(
    home: Home, damaged: list[int], given: list[bytes], left: list[bytes]
) -> None:
    log = filled(home, compacted=True)
    roll(log, NOW_MS)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    for number in damaged:
        data[(number + 1) * SIZE - 1] ^= 1
    path.write_bytes(data)
    hole = find_hole(log, log.segments[0], damaged[0] * SIZE)
    assert hole is not None and hole.is_open == (damaged[-1] == 4)
    batches: list[Batch] = [(memoryview(each), BatchHeader.read(each)) for each in given]
    rewrite_batches(home.disk, log, hole, batches)
    assert install(log, home.files, hole)
    append(log, batch(b"5"), epoch=1)
    assert everything(log) == [*left, b"5"]
    assert not install(log, home.files, hole), "the old segment is gone"


def test_a_rewritten_segment_keeps_its_aborted_transactions(home: Home) -> None:
    log = home.open(cleanup_policy=COMPACTED)
    append(log, at(0), sent(), marker(), at(3))
    roll(log, NOW_MS)
    log.flush()
    size = log.segments[0].size_bytes
    hole = CorruptRange(log.segments[0], size - SIZE, size, 3, 4, is_open=True)
    chunk = at(3, b"another")
    rewrite_batches(home.disk, log, hole, [(memoryview(chunk), BatchHeader.read(chunk))])
    assert install(log, home.files, hole)
    assert [entry[:3] for entry in aborted_transactions(log, 0, 9)] == [(5, 1, 2)]
    assert (home.directory / f"{0:020d}.txnindex").stat().st_size > 0


def test_another_hole_in_the_segment_is_not_written_over(home: Home) -> None:
    log = filled(home, compacted=True)
    roll(log, NOW_MS)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    for number in (1, 3):
        data[(number + 1) * SIZE - 1] ^= 1
    path.write_bytes(data)
    hole = find_hole(log, log.segments[0], SIZE)
    assert hole is not None and (hole.first_offset, hole.end_offset) == (1, 2)
    with pytest.raises(ApiError, match=r"is damaged at byte .* as well"):
        rewrite_batches(home.disk, log, hole, [])
    assert path.read_bytes() == data


def test_batches_written_by_this_process_are_served_unverified(home: Home) -> None:
    """Clients verify batches themselves; batches of an earlier process are verified once."""
    log = filled(home)
    data = bytearray(log.segments[0].path.read_bytes())
    data[SIZE - 1] ^= 1
    log.segments[0].path.write_bytes(data)
    assert log.read(0, max_bytes=SIZE).size_bytes == SIZE
    log.segments[0].verification.invalidate()
    with pytest.raises(ApiError):
        log.read(0, max_bytes=SIZE)
    assert log.read(1, max_bytes=SIZE).size_bytes == SIZE


@pytest.mark.parametrize("cut_bytes", [1, SIZE - HEADER_BYTES, SIZE - HEADER_BYTES + 1, SIZE - 1, SIZE])
def test_a_last_batch_that_is_not_all_there_is_a_hole_to_the_end(home: Home, cut_bytes: int) -> None:
    log = filled(home)
    assert find_hole(log, log.segments[0], 4 * SIZE) is None, "it is whole"
    path = log.segments[0].path
    path.write_bytes(path.read_bytes()[:-cut_bytes] + b"\xff" * cut_bytes)
    hole = find_hole(log, log.segments[0], 4 * SIZE)
    assert hole == CorruptRange(log.segments[0], 4 * SIZE, 5 * SIZE, 4, 5, is_open=True)


@pytest.mark.parametrize("length", [-1, 0, SIZE - LOG_OVERHEAD_BYTES + 1, 2**31 - 1])
def test_a_batch_of_a_wrong_length_is_a_hole_up_to_the_next(home: Home, length: int) -> None:
    """The index knows where the next one begins."""
    log = home.open(index_interval_bytes=1)
    for number in range(5):
        append(log, batch(b"%d" % number), epoch=1)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[2 * SIZE + 8 : 2 * SIZE + 12] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    hole = find_hole(log, log.segments[0], 2 * SIZE)
    assert hole == CorruptRange(log.segments[0], 2 * SIZE, 3 * SIZE, 2, 3, is_open=False)


@pytest.mark.parametrize(("claimed", "first"), [(4, 3), (5, 3), (6, 3), (2, 3), (3, 4)])
def test_a_repair_begins_at_a_batch_that_claims_another_offset(home: Home, claimed: int, first: int) -> None:
    """No checksum covers the base offset, and the damaged batch behind follows on it."""
    log = filled(home)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[3 * SIZE : 3 * SIZE + 8] = claimed.to_bytes(8, "big")
    data[5 * SIZE - 1] ^= 1
    path.write_bytes(data)
    hole = find_hole(log, log.segments[0], 4 * SIZE)
    assert hole is not None and (hole.position, hole.first_offset) == (first * SIZE, first)


def test_a_batch_that_claims_the_offset_of_the_next_is_a_hole(home: Home) -> None:
    """In a compacted log, any offset up to that of the next batch may be its own."""
    log = filled(home, compacted=True)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[3 * SIZE : 3 * SIZE + 8] = (4).to_bytes(8, "big")
    path.write_bytes(data)
    assert find_hole(log, log.segments[0], 3 * SIZE) == hole_of(log, 3, 4)
