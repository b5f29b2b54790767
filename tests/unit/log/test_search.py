"""Searches by time and for aborted transactions: first and last hits, exact bounds, and what lies between."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.index import AbortedTransaction
from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, collect_aborted, first_record_ms, search_timestamp
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append
from tests.unit.log.test_log_transactions import marker, sent


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# -- by time ---------------------------------------------------------------------------------------------------------


def with_times(home: Home, *times: int, clean: bool = False) -> Log:
    """One batch and one segment for each time."""
    log = home.open()
    for number, time in enumerate(times):
        if number:
            roll(log, NOW_MS)
        append(log, batch(b"%d" % number, timestamp_ms=time), epoch=number)
    if clean:
        close_log(log)
        log = home.open(clean=True)
    return log


@pytest.mark.parametrize("clean", [False, True], ids=["loaded", "to be loaded"])
@pytest.mark.parametrize(
    ("times", "newest"), [((), None), ((0,), 0), ((5, 0), 0), ((0, 5, 5), 1), ((-1,), None), ((-1, 0), 1)]
)
def test_the_newest_record_is_the_first_of_its_time(
    home: Home, times: tuple[int, ...], newest: int | None, clean: bool
) -> None:
    log = with_times(home, *times, clean=clean)
    found = search_timestamp(log, None).run()
    assert found == (None if newest is None else (times[newest], newest, newest))


@pytest.mark.parametrize("clean", [False, True], ids=["loaded", "to be loaded"])
@pytest.mark.parametrize("log_start", [0, 1, 3])
def test_the_first_record_at_or_behind_a_time_is_found(home: Home, log_start: int, clean: bool) -> None:
    times = (10, 30, 20, 30, 40)
    log = with_times(home, *times, clean=clean)
    log.update_high_watermark(len(times))
    log.advance_log_start(log_start)
    for time in (0, 9, 10, 11, 20, 21, 30, 31, 40, 41):
        expected = next((at for at in range(log_start, len(times)) if times[at] >= time), None)
        found = search_timestamp(log, time).run()
        assert found == (None if expected is None else (times[expected], expected, expected)), time


def test_records_before_the_log_start_are_not_found(home: Home) -> None:
    """The batch in which it lies is still there."""
    log = home.open()
    append(log, batch(b"0", b"1", b"2", b"3", timestamp_ms=NOW_MS))
    log.advance_log_start(2)
    found = [search_timestamp(log, NOW_MS + more).run() for more in range(5)]
    assert [None if each is None else each.offset for each in found] == [2, 2, 2, 3, None]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_time_inside_a_batch_is_found_to_the_record(home: Home, compression: str) -> None:
    log = home.open()
    append(log, batch(b"0", b"1", b"2", timestamp_ms=NOW_MS, compression=compression), epoch=4)
    assert [search_timestamp(log, NOW_MS + more).run() for more in (0, 1, 2)] == [
        (NOW_MS + more, more, 4) for more in (0, 1, 2)
    ]


def test_the_time_of_the_first_record_is_from_the_header_of_its_batch(home: Home) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    append(log, batch(b"0", b"1", timestamp_ms=NOW_MS - 50), now_ms=NOW_MS + 7)
    assert first_record_ms(log, 0, 2) == NOW_MS + 7, "the broker's time"
    assert first_record_ms(log, 0, 0) is None and first_record_ms(log, 2, 9) is None


# -- aborted transactions --------------------------------------------------------------------------------------------


def two_aborted(home: Home) -> Log:
    """Records at 0 and 3 of producer 5, at 1 of producer 6; markers of 6 at 2 and of 5 at 4; a record at 5."""
    log = home.open()
    append(log, sent(0))
    append(log, batch(b"v", producer_id=6, sequence=0, transactional=True))
    append(log, marker(6))
    append(log, sent(1))
    append(log, marker(5))
    append(log, batch(b"v"))
    return log


@pytest.mark.parametrize(
    ("start", "end", "producers"),
    [
        (0, 6, [5, 6]),
        (0, 1, [5]),
        (0, 2, [5, 6]),
        (2, 3, [5, 6]),
        (3, 4, [5]),
        (4, 5, [5]),
        (5, 6, []),
        (0, 0, []),
    ],
)
def test_aborted_transactions_overlap_what_is_read(home: Home, start: int, end: int, producers: list[int]) -> None:
    log = two_aborted(home)
    found = aborted_transactions(log, start, end)
    assert [entry.producer_id for entry in found] == producers, "by first offset"
    assert all((entry.first_offset, entry.last_offset) == {5: (0, 4), 6: (1, 2)}[entry.producer_id] for entry in found)


@pytest.mark.parametrize(("stable", "end", "is_all"), [(9, 9, True), (9, 10, False), (10, 9, True)])
def test_a_stable_offset_behind_the_end_says_that_no_more_follow(
    home: Home, stable: int, end: int, is_all: bool
) -> None:
    log = home.open()
    segment, found = log.segments.active, list[AbortedTransaction]()
    assert not collect_aborted(segment, 0, end, found), "without an entry nothing is known"
    for number in (1, 5):
        entry = AbortedTransaction(number, number, number + 1, 3 if number == 1 else stable)
        segment.indexes.transactions.append(entry)
    assert collect_aborted(segment, 2, end, found) == is_all
    assert [entry.producer_id for entry in found] == [1, 5]
    assert collect_aborted(segment, 3, 4, found) and len(found) == 2, "neither overlaps"
