"""The entries of a segment's indexes: how far apart they are, also after restarts and truncations."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.rolling import roll
from odradek.log.segment import Segment
from odradek.log.truncation import truncate_to
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append, everything

COUNT = 12
ONE = batch(b"0")
SIZE = len(ONE)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def entries(segment: Segment) -> list[int]:
    """The numbers of the batches that the offset index has."""
    segment.indexes.load()
    positions = segment.indexes.offsets.positions_after(-1)
    assert all(segment.indexes.offsets.position_for(at // SIZE) == at for at in positions)
    return [position // SIZE for position in positions]


def filled(log: Log, count: int = COUNT) -> Log:
    for number in range(log.log_end_offset, count):
        append(log, batch(b"0", timestamp_ms=NOW_MS + number))
    return log


@pytest.mark.parametrize(
    ("interval", "indexed"),
    [
        (1, list(range(1, COUNT))),
        (SIZE - 1, list(range(1, COUNT))),
        (SIZE, [2, 4, 6, 8, 10]),
        (3 * SIZE - 1, [3, 6, 9]),
        (3 * SIZE, [4, 8]),
    ],
)
@pytest.mark.parametrize("pause", [COUNT, 1, 4, 5, 6], ids=str)
def test_an_entry_comes_more_than_an_interval_behind_the_last(
    home: Home, interval: int, indexed: list[int], pause: int
) -> None:
    log = home.open(index_interval_bytes=interval)
    filled(log, pause)
    close_log(log)
    log = filled(home.open(clean=True, index_interval_bytes=interval))
    assert entries(log.segments[0]) == indexed
    times = log.segments[0].indexes.times
    assert len(times) == len(indexed)
    assert times.last() == (NOW_MS + indexed[-1], indexed[-1])


@pytest.mark.parametrize("keep", [1, 3, 4, 5, 8, 9])
def test_entries_go_on_behind_a_truncation_as_if_it_had_not_been(home: Home, keep: int) -> None:
    log = filled(home.open(index_interval_bytes=3 * SIZE))
    truncate_to(log, keep)
    indexes = log.segments[0].indexes
    assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (NOW_MS + keep - 1, keep - 1)
    assert entries(filled(log).segments[0]) == [4, 8]


def test_an_unclean_stop_leaves_indexes_as_they_were(home: Home) -> None:
    log = filled(home.open(index_interval_bytes=3 * SIZE))
    roll(log, NOW_MS)
    before = [path.read_bytes() for path in log.segments[0].indexes.paths()[:2]]
    log = home.open(index_interval_bytes=3 * SIZE)
    assert entries(log.segments[0]) == [4, 8]
    log.flush()
    after = [path.read_bytes() for path in log.segments[0].indexes.paths()[:2]]
    assert after[0] == before[0] and after[1] == before[1][: len(after[1])]


def test_the_newest_record_is_the_first_of_its_time_in_a_segment(home: Home) -> None:
    log = home.open()
    for time in (5, 9, 9, 7):
        append(log, batch(b"a", timestamp_ms=NOW_MS + time))
    for clean in (False, True):
        indexes = log.segments[0].indexes
        indexes.load()
        assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (NOW_MS + 9, 1)
        close_log(log)
        log = home.open(clean=clean)


def test_the_newest_record_of_a_batch_counts_as_its_last(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a", b"b", b"c"))
    indexes = log.segments[0].indexes
    assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (NOW_MS + 2, 2)


@pytest.mark.parametrize("emptied", [".index", ".timeindex", ".index .timeindex"])
def test_an_index_without_entries_is_made_again_where_it_should_have_some(home: Home, emptied: str) -> None:
    log = filled(home.open(index_interval_bytes=1))
    roll(log, NOW_MS)
    close_log(log)
    for suffix in emptied.split():
        log.segments[0].path.with_suffix(suffix).unlink()
    log = home.open(clean=True)
    assert len(everything(log)) == COUNT
    indexes = log.segments[0].indexes
    indexes.load()
    assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (NOW_MS + COUNT - 1, COUNT - 1)
    assert indexes.offset_before(NOW_MS + 5) <= 5


def test_a_flushed_segment_has_both_indexes_though_they_are_empty(home: Home) -> None:
    """Apache Kafka scans a segment that lacks one; it needs no index of aborted transactions."""
    log = filled(home.open(), 1)
    log.segments[0].indexes.flush()
    offsets, times, transactions = log.segments[0].indexes.paths()
    assert [path.read_bytes() for path in (offsets, times)] == [b"", b""] and not transactions.exists()
