"""Where a log's offsets and sizes end: exact limits, counts, and what an append changes of its input."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.append_info import AppendInfo
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.log_dir import LogDir
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log import Home, append, everything
from tests.unit.log.test_log_transactions import marker

ONE = batch(b"0")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def at(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    data = bytearray(batch(*values))
    patch_base_offset(data, offset)
    patch_leader_epoch(data, epoch)
    return bytes(data)


# -- appending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_batches_of_one_append_may_fill_a_segment_exactly(home: Home, count: int) -> None:
    log = home.open(segment_bytes=count * len(ONE))
    assert append(log, *[ONE] * count) == AppendInfo(0, count - 1)
    log = home.open(clean=True, segment_bytes=count * len(ONE) - 1)
    with pytest.raises(ApiError, match=f"are more than segment.bytes={count * len(ONE) - 1} of") as error:
        append(log, *[ONE] * count)
    assert error.value.code is ErrorCode.RECORD_LIST_TOO_LARGE and log.log_end_offset == count


@pytest.mark.parametrize("producer_id", [0, 1])
def test_an_append_says_whether_its_batch_was_there_before(home: Home, producer_id: int) -> None:
    log = home.open()
    data = batch(b"a", b"b", producer_id=producer_id, sequence=0)
    assert append(log, data) == AppendInfo(0, 1, -1, duplicate=False)
    assert append(log, data) == AppendInfo(0, 1, -1, duplicate=True)
    assert append_as_follower(log, at(2, b"c"), now_ms=NOW_MS) == AppendInfo(2, 2, -1, duplicate=False)
    assert everything(log) == [b"a", b"b", b"c"]


def test_only_writable_batches_get_their_offsets_in_place(home: Home) -> None:
    log = home.open()
    constant, view, own = bytes(ONE), memoryview(bytes(ONE)), bytearray(ONE)
    for data in (constant, view, own):
        log.append_as_leader([data], [header_of(ONE)], leader_epoch=3, now_ms=NOW_MS)
    assert constant == view == ONE
    assert (header_of(bytes(own)).base_offset, header_of(bytes(own)).partition_leader_epoch) == (2, 3)
    assert [log.epoch_of(offset) for offset in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("now_ms", [0, NOW_MS])
def test_records_get_the_brokers_time_and_markers_keep_theirs(home: Home, now_ms: int) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    assert append(log, batch(b"v", timestamp_ms=5), now_ms=now_ms) == AppendInfo(0, 0, now_ms)
    append(log, marker(), now_ms=now_ms)
    headers = [header for segment in log.segments for _, header in segment.headers(0)]
    times = [(header.is_control, header.max_timestamp) for header in headers]
    assert times == [(False, now_ms), (True, header_of(marker()).max_timestamp)]
    log = home.open(clean=True)
    assert append(log, batch(b"v", timestamp_ms=5), now_ms=now_ms).log_append_time_ms == -1


# -- a follower ------------------------------------------------------------------------------------------------------


def test_a_follower_takes_any_leader_epoch_unless_it_knows_its_leaders(home: Home) -> None:
    log = home.open()
    append_as_follower(log, at(0, b"a", epoch=2**31 - 1), now_ms=NOW_MS)
    with pytest.raises(ApiError) as error:
        append_as_follower(home.open(), at(1, b"b", epoch=5), now_ms=NOW_MS, leader_epoch=4)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_follower_has_nothing_of_an_incomplete_batch(home: Home) -> None:
    log = home.open()
    for data in (b"", at(0, b"a")[:-1]):
        assert append_as_follower(log, data, now_ms=NOW_MS) is None
    assert log.log_end_offset == 0


def test_an_empty_follower_may_begin_inside_a_batch(home: Home) -> None:
    """The records before its start were deleted; the files begin with the batch."""
    log = home.open()
    truncate_fully_and_start_at(log, 5)
    info = append_as_follower(log, at(3, b"3", b"4", b"5", b"6"), now_ms=NOW_MS)
    assert info == AppendInfo(3, 6)
    assert (log.segments.bases, log.log_start_offset, log.log_end_offset) == ([3], 5, 7)
    for first in (7, 8):
        assert append_as_follower(log, at(first, b"x"), now_ms=NOW_MS) == AppendInfo(first, first)
    assert (log.segments.bases, log.log_start_offset) == ([3], 5)
    with pytest.raises(ApiError):
        append_as_follower(log, at(7, b"7", b"8", b"9"), now_ms=NOW_MS)


# -- its offsets -----------------------------------------------------------------------------------------------------


def five(home: Home) -> Log:
    log = home.open()
    for number in range(5):
        append(log, batch(b"%d" % number))
    return log


def test_a_log_counts_what_is_not_durable_and_how_often_it_was_truncated(home: Home) -> None:
    log = five(home)
    assert (log.unflushed_count, log.truncation_count) == (5, 0)
    log.flush()
    append(log, ONE)
    assert log.unflushed_count == 1
    truncate_to(log, 6)
    assert log.truncation_count == 0, "there was nothing"
    truncate_to(log, 3)
    truncate_fully_and_start_at(log, 9)
    assert log.truncation_count == 2


def test_a_log_start_moves_forward_alone(home: Home) -> None:
    log = five(home)
    assert [log.advance_log_start(offset) for offset in (0, 2, 2, 1, 5)] == [False, True, False, False, True]
    assert log.log_start_offset == 5
    assert [log.update_high_watermark(offset) for offset in (5, 4, 9)] == [False] * 3
    assert log.high_watermark == 5


@pytest.mark.parametrize(("offset", "upper"), [(0, None), (0, 9), (2, 3), (4, 5)])
def test_a_read_ends_below_its_upper_offset(home: Home, offset: int, upper: int | None) -> None:
    log = five(home)
    found = log.read(offset, max_bytes=10_000, upper_offset=upper)
    count = min(5, upper if upper is not None else 5) - offset
    assert (found.size_bytes, len(found.chunks)) == (count * len(ONE), 1)
    assert log.read(offset, max_bytes=0, upper_offset=upper, at_least_one=False).chunks == []
    assert log.read(offset, max_bytes=0, upper_offset=upper).size_bytes == len(ONE)
    assert log.read(offset, max_bytes=1, upper_offset=upper, at_least_one=False).size_bytes == 0
    assert log.read(offset, max_bytes=len(ONE), at_least_one=False).size_bytes == len(ONE)


@pytest.mark.parametrize(("missing", "sent"), [(0, 5), (1, 4), (len(ONE), 4), (len(ONE) + 1, 3)])
def test_a_read_of_all_that_is_there_does_not_end_at_an_index_entry(home: Home, missing: int, sent: int) -> None:
    log = home.open(index_interval_bytes=1)
    for number in range(5):
        append(log, batch(b"%d" % number))
    assert log.read(0, max_bytes=5 * len(ONE) - missing).size_bytes == sent * len(ONE)


# -- log directories -------------------------------------------------------------------------------------------------


def test_a_log_directory_is_usable_and_was_not_stopped_cleanly_until_read() -> None:
    directory = LogDir(Path("/data"))
    assert directory.directory_id == UUID(int=0)
    assert (directory.clean_shutdown, directory.clean_broker_epoch) == (False, -1)
    assert (directory.offline, directory.cordoned, directory.full) == (False, False, False)
