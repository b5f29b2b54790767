"""The end of a segment, and the segments that retention deletes: each limit at its edge, over real segments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.retention import Deletable, count_deletable
from odradek.log.rolling import must_roll
from odradek.log.segment import Segment
from odradek.record.batch import BatchHeader, patch_base_offset
from tests.support.models.batches import batch, header_of
from tests.support.models.hand_made import header_fields

NOW_MS = 1_000_000
Make = Callable[..., Segment]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a segment with one batch whose newest record has this timestamp; None for an empty one."""
    files = FileCache(RealDisk(workers=1))

    def made(base: int, timestamp_ms: int | None, *, created_ms: int = NOW_MS) -> Segment:
        segment = Segment(files, tmp_path, base, created_ms=created_ms)
        segment.open(create=True)
        if timestamp_ms is not None:
            data = bytearray(batch(b"v" * 30, timestamp_ms=timestamp_ms))
            patch_base_offset(data, base)
            segment.index_batch(header_of(bytes(data)), segment.write([data]), 4096)
        return segment

    return made


# -- which segments may go -------------------------------------------------------------------------------------------

# One segment has so many bytes.
SIZE = len(batch(b"v" * 30))


def gone(
    segments: list[Segment], *, now_ms: int = NOW_MS, start: int = 0, high_watermark: int = 100, **config: Any
) -> int:
    ends = [each.base_offset + 10 for each in segments]
    usual: dict[str, Any] = {"retention_ms": -1, **config}
    found = count_deletable(
        segments,
        ends,
        LogConfig(**usual),
        now_ms=now_ms,
        log_start_offset=start,
        high_watermark=high_watermark,
    )
    assert found.unread is None
    return found.segment_count


def four(make: Make) -> list[Segment]:
    return [make(number * 10, NOW_MS - 400 + number * 100) for number in range(4)]


@pytest.mark.parametrize(
    ("retention_ms", "count"),
    [(-1, 0), (400, 0), (399, 1), (300, 1), (299, 2), (100, 3), (99, 4), (0, 4)],
)
def test_a_segment_goes_when_its_newest_record_is_too_old(make: Make, retention_ms: int, count: int) -> None:
    segments = four(make)
    assert gone(segments, retention_ms=retention_ms) == count
    assert gone(segments, retention_ms=retention_ms, cleanup_policy=("compact",)) == 0
    assert gone(segments, retention_ms=retention_ms, cleanup_policy=("compact", "delete")) == count


@pytest.mark.parametrize(
    ("retention_bytes", "count"),
    [(-1, 0), (4 * SIZE, 0), (3 * SIZE + 1, 0), (3 * SIZE, 1), (2 * SIZE, 2), (2 * SIZE + 1, 1), (1, 3), (0, 4)],
)
def test_segments_go_while_as_much_is_left_as_retention_wants(make: Make, retention_bytes: int, count: int) -> None:
    segments = four(make)
    assert gone(segments, retention_bytes=retention_bytes) == count
    assert gone(segments, retention_bytes=retention_bytes, cleanup_policy=("compact",)) == 0


def test_segments_deleted_by_age_count_for_the_size(make: Make) -> None:
    segments = four(make)
    assert gone(segments, retention_bytes=3 * SIZE, retention_ms=399) == 1
    assert gone(segments, retention_bytes=2 * SIZE, retention_ms=399) == 2
    assert gone(segments, retention_bytes=2 * SIZE, retention_ms=200) == 2


@pytest.mark.parametrize(("start", "count"), [(9, 0), (10, 1), (19, 1), (20, 2), (40, 4)])
def test_segments_below_the_log_start_go_under_every_policy(make: Make, start: int, count: int) -> None:
    segments = four(make)
    for policy in (("delete",), ("compact",)):
        assert gone(segments, start=start, cleanup_policy=policy) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (29, 2), (30, 3), (40, 4)])
def test_no_segment_is_deleted_that_is_not_replicated(make: Make, high_watermark: int, count: int) -> None:
    segments = four(make)
    assert gone(segments, retention_ms=0, high_watermark=high_watermark) == count
    assert gone(segments, start=40, high_watermark=high_watermark) == count


def test_an_empty_segment_stays(make: Make) -> None:
    assert gone([make(0, None, created_ms=0)], retention_ms=0) == 0


def test_records_without_a_time_are_as_old_as_their_segment(make: Make) -> None:
    assert gone([make(0, -1, created_ms=NOW_MS - 500)], retention_ms=500) == 0
    assert gone([make(10, -1, created_ms=NOW_MS - 501)], retention_ms=500) == 1
    assert gone([make(20, 0, created_ms=NOW_MS)], retention_ms=500) == 1, "zero is a time"


def test_an_unread_timestamp_is_read_before_its_segment_is_deleted(make: Make) -> None:
    first, second = make(0, NOW_MS - 400), make(10, NOW_MS - 400)
    second.seal()
    second.indexes._unload()
    second.indexes._newest_was_known = False
    arguments = {"now_ms": NOW_MS, "high_watermark": 100}
    old = LogConfig(retention_ms=100)
    assert count_deletable([first, second], [10, 20], old, log_start_offset=0, **arguments) == Deletable(1, second)
    assert count_deletable([first, second], [10, 20], old, log_start_offset=20, **arguments) == Deletable(2)


# -- when a segment ends ---------------------------------------------------------------------------------------------


def rolls(
    segment: Segment,
    *headers: BatchHeader,
    size_bytes: int = 10,
    jitter: float = 0.0,
    now_ms: int = NOW_MS,
    **config: Any,
) -> bool:
    next_one = header_fields(base_offset=10, max_timestamp=NOW_MS)
    settings = LogConfig(**config)
    return must_roll(segment, size_bytes, headers or [next_one], settings, jitter=jitter, now_ms=now_ms)


def test_a_segment_takes_what_fits(make: Make) -> None:
    segment = make(0, NOW_MS)
    assert not rolls(segment, size_bytes=20, segment_bytes=SIZE + 20)
    assert rolls(segment, size_bytes=21, segment_bytes=SIZE + 20)
    assert not rolls(make(50, None), size_bytes=21, segment_bytes=20), "the first batch is taken whatever its size"


def test_a_segment_ends_when_another_entry_does_not_fit_into_an_index(make: Make) -> None:
    segment = make(0, NOW_MS)
    segment.indexes.times.maybe_append(NOW_MS, 0)
    assert segment.indexes.size_bytes == 12
    assert not rolls(segment, segment_index_bytes=24)
    assert rolls(segment, segment_index_bytes=23)


@pytest.mark.parametrize("timestamp_ms", [NOW_MS, None])
def test_a_segment_ends_where_its_indexes_cannot_count_further(make: Make, timestamp_ms: int | None) -> None:
    segment = make(7, timestamp_ms)
    last = header_fields(base_offset=7 + 2**31 - 2, max_timestamp=NOW_MS)
    assert not rolls(segment, last._replace(last_offset_delta=1))
    assert rolls(segment, last._replace(last_offset_delta=2))


def test_a_segment_ends_at_an_age_that_records_say(make: Make) -> None:
    segment = make(0, NOW_MS - 100, created_ms=0)
    assert not rolls(segment, segment_ms=100)
    assert rolls(segment, segment_ms=99)
    assert not rolls(segment, now_ms=NOW_MS + 10**9, segment_ms=100), "the wall clock says nothing"
    newest, oldest = (header_fields(base_offset=each, max_timestamp=NOW_MS - 50 * each) for each in (0, 1))
    for headers in ([newest, oldest], [oldest, newest]):
        assert not rolls(segment, *headers, segment_ms=100)
        assert rolls(segment, *headers, segment_ms=99)


def test_a_segment_without_times_ends_at_its_own_age(make: Make) -> None:
    segment = make(0, -1, created_ms=NOW_MS - 100)
    assert not rolls(segment, segment_ms=100)
    assert rolls(segment, segment_ms=99)
    assert not rolls(make(20, 0, created_ms=0), segment_ms=NOW_MS), "zero is a time"
    assert rolls(make(40, 0, created_ms=NOW_MS), segment_ms=NOW_MS - 1)


def test_jitter_takes_a_share_of_its_setting_from_the_age(make: Make) -> None:
    segment = make(0, NOW_MS - 80)
    assert not rolls(segment, segment_ms=100, segment_jitter_ms=40, jitter=0.5)
    assert rolls(segment, segment_ms=100, segment_jitter_ms=42, jitter=0.5)
    assert not rolls(segment, segment_ms=100, segment_jitter_ms=42)
    assert not rolls(segment, segment_ms=100, segment_jitter_ms=10**9, jitter=0.2), "no more than the age itself"
    assert rolls(segment, segment_ms=100, segment_jitter_ms=10**9, jitter=0.21)
