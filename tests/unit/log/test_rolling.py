"""The limits at which a segment ends: of offsets, bytes, indexes and age, each to the unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.log.config import LogConfig
from odradek.log.index import INDEX_ENTRY_BYTES
from odradek.log.log import Log
from odradek.log.rolling import advance_end_to, must_roll, roll
from odradek.log.segment_file import MAX_RELATIVE_OFFSET
from odradek.record.batch import BatchHeader
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log import Home, append

ONE = batch(b"0")
SIZE = len(ONE)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def rolls(log: Log, *headers: BatchHeader, jitter: float = 0.0, now_ms: int = NOW_MS, **config: Any) -> bool:
    given = headers or (header_of(ONE).with_offset(log.log_end_offset, 0),)
    return must_roll(log.segments.active, SIZE, given, LogConfig(**config), jitter=jitter, now_ms=now_ms)


def timed(*times: int) -> list[BatchHeader]:
    return [header_of(batch(b"v", timestamp_ms=NOW_MS + time)).with_offset(1 + at, 0) for at, time in enumerate(times)]


@pytest.mark.parametrize(("last", "is_due"), [(MAX_RELATIVE_OFFSET, False), (MAX_RELATIVE_OFFSET + 1, True)])
def test_a_segment_counts_so_many_offsets(home: Home, last: int, is_due: bool) -> None:
    log = home.open()
    advance_end_to(log, 10, NOW_MS)
    assert log.segments.bases == [0, 10]
    header = header_of(ONE).with_offset(10 + last, 0)
    assert rolls(log, header) == is_due, "though it is empty"
    assert rolls(log, header_of(ONE).with_offset(11, 0), header) == is_due, "the last batch decides"


@pytest.mark.parametrize("left", [0, -1])
def test_a_segment_has_so_many_bytes(home: Home, left: int) -> None:
    log = home.open()
    assert not rolls(log, segment_bytes=1), "an empty one takes any batch"
    for count in (1, 2):
        append(log, ONE)
        assert rolls(log, segment_bytes=(count + 1) * SIZE + left) == (left < 0)


def test_a_full_index_ends_a_segment(home: Home) -> None:
    log = home.open(index_interval_bytes=1)
    for number in range(4):
        append(log, batch(b"0", timestamp_ms=NOW_MS + number))
    used = log.segments.active.indexes.size_bytes
    assert used == 3 * INDEX_ENTRY_BYTES, "the time index is the larger one"
    assert not rolls(log, segment_index_bytes=used + INDEX_ENTRY_BYTES)
    assert rolls(log, segment_index_bytes=used + INDEX_ENTRY_BYTES - 1)
    assert INDEX_ENTRY_BYTES == 12


@pytest.mark.parametrize(
    ("times", "is_due"),
    [((100,), False), ((101,), True), ((101, 0), True), ((0, 101), True), ((50, 100), False), ((-500,), False)],
)
def test_the_age_is_from_the_first_record_to_the_newest_one(home: Home, times: tuple[int, ...], is_due: bool) -> None:
    log = home.open()
    append(log, batch(b"0"))
    assert rolls(log, *timed(*times), segment_ms=100, now_ms=NOW_MS + 10**6) == is_due


@pytest.mark.parametrize("first_ms", [0, -1])
def test_records_without_times_are_as_old_as_their_segment(home: Home, first_ms: int) -> None:
    log = home.open()
    append(log, batch(b"0", timestamp_ms=first_ms))
    headers = [header_of(batch(b"v", timestamp_ms=first_ms)).with_offset(1, 0)]
    created_ms = log.segments.active.created_ms
    for passed_ms, is_due in ((100, False), (101, True)):
        found = rolls(log, *headers, segment_ms=100, now_ms=created_ms + passed_ms)
        assert found == (is_due and first_ms < 0), "0 is a time"


@pytest.mark.parametrize(
    ("jitter", "jitter_ms", "age_ms"), [(0.5, 40, 80), (1.0, 40, 60), (0.0, 40, 100), (0.5, 1000, 50), (0.5, 0, 100)]
)
def test_jitter_is_a_share_of_at_most_the_whole_age(home: Home, jitter: float, jitter_ms: int, age_ms: int) -> None:
    log = home.open()
    append(log, ONE)
    for more, is_due in ((0, False), (1, True)):
        headers = timed(age_ms + more)
        assert rolls(log, *headers, jitter=jitter, segment_ms=100, segment_jitter_ms=jitter_ms) == is_due


def test_a_rolled_segment_ends_its_time_index_with_its_newest_record(home: Home) -> None:
    log = home.open()
    for time in (5, 9, 7):
        append(log, batch(b"v", timestamp_ms=NOW_MS + time))
    roll(log, NOW_MS)
    data = log.segments[0].indexes.times.path.read_bytes()
    assert data == (NOW_MS + 9).to_bytes(8, "big") + (1).to_bytes(4, "big"), "as in Kafka"
    assert log.segments.bases == [0, 3] and log.segments.active.created_ms == NOW_MS
    roll(log, NOW_MS)
    assert log.segments.bases == [0, 3], "an empty one at the end stays"


def test_a_gap_without_records_begins_a_segment(home: Home) -> None:
    log = home.open()
    append(log, ONE)
    advance_end_to(log, 50, NOW_MS)
    advance_end_to(log, 60, NOW_MS)
    assert (log.segments.bases, log.log_end_offset, log.producers.map_end_offset) == ([0, 50, 60], 60, 60)
    assert append(log, ONE).base_offset == 60
    assert log.read(1, max_bytes=1000).size_bytes == SIZE
