"""The extent of a cleaning: which segments it may touch, how dirty a log is, and when it is overdue."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.log.compaction.batches import LastOfProducer
from odradek.log.compaction.cleaning import SegmentPlan
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.plan import Dirtiness, active_is_overdue, examine, make_plan
from odradek.log.config import LogConfig
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.unit.log.test_log_durable import DIRECTORY, NOW_MS, PRODUCER_ID, Home, several_segments

# Segments of three batches each end at these offsets, and two batches are in the active one.
ENDS = [3, 6, 9]


def dirty(home: Home, now_ms: int = 0, **config: Any) -> tuple[int, int, int, int, int]:
    """First dirty offset, end offset, clean and dirty bytes in batches, overdue ms; times count from the first one."""
    home.log.config = LogConfig(cleanup_policy=("compact",), **config)
    found = examine(home.log, NOW_MS + now_ms)
    size = home.log.segments[0].size_bytes // 3
    assert found.clean_bytes % size == found.dirty_bytes % size == 0
    return (
        found.first_dirty_offset, found.end_offset, found.clean_bytes // size, found.dirty_bytes // size,
        found.overdue_ms,
    )  # fmt: skip


@pytest.fixture
def home() -> Home:
    """A log whose record at each offset is as many ms younger than the first; all of it is durable and committed."""
    made = Home()
    several_segments(made)
    made.log.flush()
    return made


@pytest.mark.parametrize(
    ("cleaned", "found"),
    [
        (0, (0, 9, 0, 9, 0)),
        (2, (2, 9, 0, 9, 0)),
        (3, (3, 9, 3, 6, 0)),
        (4, (4, 9, 3, 6, 0)),
        (9, (9, 9, 9, 0, 0)),
        (11, (11, 9, 9, 0, 0)),
        (12, (0, 9, 0, 9, 0)),
    ],
)
def test_closed_segments_behind_the_cleaned_offset_are_dirty(home: Home, cleaned: int, found: tuple[int, ...]) -> None:
    home.log.cleaned_offset = cleaned
    assert dirty(home) == found, "an offset that the log does not have says nothing"


@pytest.mark.parametrize(("cleaned", "first"), [(3, 4), (4, 4), (5, 5)])
def test_a_log_start_behind_the_cleaned_offset_is_where_dirt_begins(home: Home, cleaned: int, first: int) -> None:
    home.log.advance_log_start(4)
    home.log.cleaned_offset = cleaned
    assert dirty(home) == (first, 9, 3, 6, 0)


@pytest.mark.parametrize(("limit", "end"), [(11, 9), (9, 9), (8, 6), (6, 6), (3, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("what", ["durable", "committed"])
def test_segments_are_cleaned_up_to_what_is_durable_and_committed(home: Home, limit: int, end: int, what: str) -> None:
    if what == "durable":
        home.log.flush_state.recovery_point = limit
    else:
        home.log.high_watermark = limit
    assert dirty(home) == (0, end, 0, end, 0)


def test_segments_behind_an_open_transaction_are_not_cleaned() -> None:
    home = Home()
    for number in range(4):
        home.append(3, transactional=number > 0)
        home.roll()
    home.log.flush()
    assert dirty(home)[:2] == (0, 3)


@pytest.mark.parametrize(
    ("now_ms", "cleaned", "end"),
    [(11, 0, 0), (12, 0, 3), (14, 0, 3), (15, 0, 6), (18, 0, 9), (11, 3, 3), (14, 3, 3), (15, 3, 6), (11, 2, 0)],
)
def test_a_segment_with_a_young_record_waits(home: Home, now_ms: int, cleaned: int, end: int) -> None:
    home.log.cleaned_offset = cleaned
    assert dirty(home, now_ms, min_compaction_lag_ms=10)[1] == end
    assert dirty(home, now_ms)[1] == 9, "without a lag none waits"


@pytest.mark.parametrize(
    ("now_ms", "cleaned", "overdue_ms"), [(5, 0, 0), (6, 0, 1), (9, 0, 4), (9, 3, 1), (8, 3, 0), (99, 9, 0)]
)
def test_a_log_is_overdue_by_its_oldest_dirty_record(home: Home, now_ms: int, cleaned: int, overdue_ms: int) -> None:
    home.log.cleaned_offset = cleaned
    assert dirty(home, now_ms, max_compaction_lag_ms=5)[4] == overdue_ms
    assert dirty(home, now_ms)[4] == dirty(home, now_ms, max_compaction_lag_ms=0)[4] == 0


@pytest.mark.parametrize(("now_ms", "is_overdue"), [(13, False), (14, False), (15, True)])
def test_an_active_segment_is_overdue_by_its_first_record(home: Home, now_ms: int, is_overdue: bool) -> None:
    home.log.config = LogConfig(max_compaction_lag_ms=5)
    assert active_is_overdue(home.log, NOW_MS + now_ms) == is_overdue
    home.roll()
    assert not active_is_overdue(home.log, NOW_MS + 99), "it is empty"


@pytest.mark.parametrize(
    ("clean", "dirty_bytes", "overdue_ms", "ratio", "is_due"),
    [
        (10, 10, 0, 0.5, False),
        (9, 10, 0, 10 / 19, True),
        (10, 10, 1, 0.5, True),
        (10, 0, 1, 0.0, False),
        (0, 0, 0, 0.0, False),
        (0, 1, 0, 1.0, True),
    ],
)
def test_a_log_is_due_above_the_ratio_or_when_it_is_overdue(
    home: Home, clean: int, dirty_bytes: int, overdue_ms: int, ratio: float, is_due: bool
) -> None:
    found = Dirtiness(0, 9, clean, dirty_bytes, overdue_ms)
    assert (found.ratio, found.is_due(home.log)) == (ratio, is_due)


def test_a_plan_has_the_segments_and_limits_of_its_log(home: Home) -> None:
    home.log.config = config = LogConfig(
        delete_retention_ms=1, segment_bytes=222, segment_index_bytes=333, index_interval_bytes=4
    )
    settings = CleanerConfig(dedupe_buffer_bytes=1000, buffer_load_factor=0.5, io_buffer_bytes=50)
    size = home.log.segments[0].size_bytes
    for end, count in ((9, 3), (8, 2), (6, 2), (3, 1)):
        plan = make_plan(home.log, Dirtiness(3, end, 0, 0), settings, NOW_MS + 7)
        assert plan.segments == tuple(SegmentPlan(each - 3, each, size) for each in ENDS[:count])
        assert (plan.directory, plan.first_dirty_offset, plan.now_ms) == (DIRECTORY, 3, NOW_MS + 7)
    assert (plan.delete_retention_ms, plan.segment_bytes) == (1, 222)
    assert (plan.segment_index_bytes, plan.index_interval_bytes) == (333, config.index_interval_bytes)
    assert (plan.table_bytes, plan.read_bytes, plan.aborted) == (500, 50, ())


def test_a_plan_keeps_the_last_batches_of_producers_that_end_in_it() -> None:
    home = Home()
    for producer_id in (5, 6, PRODUCER_ID):
        data = build_batch(
            [Record(b"k", b"v", timestamp_ms=NOW_MS)], producer_id=producer_id, producer_epoch=2, base_sequence=0
        )
        home.log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=0, now_ms=NOW_MS)
        home.roll()
    for end, producers in ((3, {5: 0, 6: 1, 7: 2}), (2, {5: 0, 6: 1}), (1, {5: 0})):
        plan = make_plan(home.log, Dirtiness(0, end, 0, 0), CleanerConfig(), NOW_MS)
        assert plan.producers == {key: LastOfProducer(last, 2) for key, last in producers.items()}
