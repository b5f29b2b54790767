"""Bytes from before the start are verified once, before the first reader has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log import read_verification
from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.truncation import truncate_to
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log import Home, append

COUNT = 6
SIZE = len(batch(b"0"))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Six batches of one record each, written by an earlier process."""
    home = Home(tmp_path)
    log = home.open()
    for number in range(COUNT):
        append(log, batch(b"%d" % number))
    close_log(log)
    return home.open(clean=True)


def flip(log: Log, number: int) -> None:
    """Damage one batch, however often it was verified."""
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[(number + 1) * SIZE - 1] ^= 1
    path.write_bytes(data)


def claim(log: Log, number: int, offset: int) -> None:
    """Give a batch another base offset, which its checksum does not cover."""
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[number * SIZE : number * SIZE + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


def read(log: Log, offset: int, count: float = COUNT) -> float:
    """The number of batches in the answer; 0 if it is an error."""
    try:
        return log.read(offset, max_bytes=int(count * SIZE)).size_bytes / SIZE
    except ApiError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        return 0


def test_a_range_is_verified_once(log: Log) -> None:
    assert read(log, 1, 2) == 2
    flip(log, 1)
    flip(log, 2)
    assert read(log, 1, 2) == 2 and read(log, 2, 1) == 1
    assert read(log, 1, 3) == 0, "more than was verified"
    assert read(log, 0, 2) == 1


def test_two_reads_that_follow_each_other_are_one_range(log: Log) -> None:
    assert [read(log, 0, 2), read(log, 2, 2)] == [2, 2]
    for number in range(4):
        flip(log, number)
    assert [read(log, 0, 4), read(log, 1, 3), read(log, 0, 5)] == [4, 3, 0]


@pytest.mark.parametrize("other", [3, 4])
def test_a_reader_elsewhere_begins_another_range(log: Log, other: int) -> None:
    assert [read(log, 0, 2), read(log, other, 1)] == [2, 1]
    flip(log, 1)
    flip(log, other)
    assert [read(log, other, 1), read(log, 0, 1), read(log, 1, 1)] == [1, 1, 0]


def test_a_range_that_reaches_the_end_is_kept_for_all_readers(log: Log) -> None:
    assert [read(log, 4), read(log, 0, 1)] == [2, 1]
    flip(log, 5)
    assert read(log, 4) == 2, "another range was verified since"
    flip(log, 3)
    assert [read(log, 3), read(log, 2)] == [0, 1]


def test_ranges_before_the_end_are_added_to_it(log: Log) -> None:
    assert [read(log, 4), read(log, 2, 2), read(log, 0, 1)] == [2, 2, 1]
    for number in range(2, COUNT):
        flip(log, number)
    assert [read(log, 2), read(log, 3), read(log, 1)] == [4, 3, 1]


def test_batches_that_this_process_writes_are_not_verified(log: Log) -> None:
    append(log, batch(b"6"))
    flip(log, 6)
    flip(log, 5)
    assert [read(log, 6), read(log, 4), read(log, 5)] == [1, 1, 0]
    truncate_to(log, 3)
    append(log, batch(b"3"))
    flip(log, 3)
    assert [read(log, 3), read(log, 2)] == [1, 1], "with a batch before it, it is verified too"


@pytest.mark.parametrize(("count", "found"), [(2.5, 2.5), (3, 3), (5.5, 3), (0.5, 1)])
def test_an_answer_ends_before_damage_and_not_before_what_it_cuts(log: Log, count: float, found: float) -> None:
    flip(log, 3)
    assert read(log, 0, count) == found


@pytest.mark.parametrize(("limit", "found"), [(1, 1), (SIZE, 1), (2 * SIZE, 2), (COUNT * SIZE + 1, COUNT)])
def test_one_read_verifies_so_much(log: Log, limit: int, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_verification, "CHECKED_READ_BYTES", limit)
    assert read(log, 0) == found
    assert read(log, 5) == 1


def test_one_read_verifies_a_mebibyte() -> None:
    assert read_verification.CHECKED_READ_BYTES == 1 << 20, "half a millisecond of the loop"


@pytest.mark.parametrize(
    ("claimed", "found"),
    [
        ({2: 1}, 2),  # goes back
        ({2: 6}, 2),  # beyond the end of the segment
        ({2: 3}, 2),  # the one behind it goes back
        ({2: 5}, 2),
        ({1: 2}, 1),
        ({5: 6}, 5),
        ({1: 2, 2: 3, 3: 4, 4: 5, 5: 9}, 5),  # as compaction leaves them, up to the last
    ],
)
def test_an_offset_that_is_not_due_is_damage(log: Log, claimed: dict[int, int], found: int) -> None:
    for number, offset in claimed.items():
        claim(log, number, offset)
    assert read(log, 0) == found


def test_gaps_that_compaction_left_are_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(cleanup_policy=("compact",))
    for offset in (0, 3, 4, 9):
        data = bytearray(batch(b"v"))
        patch_base_offset(data, offset)
        patch_leader_epoch(data, 0)
        log.append_with_offsets([data], [header_of(bytes(data))], NOW_MS)
    log.update_high_watermark(10)
    close_log(log)
    log = home.open(clean=True, cleanup_policy=("compact",))
    assert [read(log, offset) for offset in (0, 1, 3, 5)] == [4, 3, 3, 1]


@pytest.mark.parametrize("byte", [8, 16])
def test_a_batch_whose_length_or_format_changed_is_damage(log: Log, byte: int) -> None:
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[2 * SIZE + byte] ^= 0x40
    path.write_bytes(data)
    assert [read(log, 0), read(log, 0, 2.9), read(log, 0, 2.5)] == [2, 2, 2.5]


def test_a_repair_has_all_verified_again(log: Log) -> None:
    append(log, batch(b"6"))
    assert read(log, 0, 7) == 7
    flip(log, 6)
    assert read(log, 0, 7) == 7
    verification = log.segments[0].verification
    verification.invalidate()
    assert [read(log, 0, 7), read(log, 6)] == [6, 0]
    verification.verified_all()
    assert read(log, 0, 7) == 7
