"""The totals over many segments equal those counted segment by segment, however these change."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.files import FileCache
from odradek.log.index import AbortedTransaction
from odradek.log.segment import Segment
from odradek.log.summary import SegmentSummary
from odradek.record.batch import patch_base_offset
from tests.support.models.batches import batch, header_of


class Shelf:
    """Segments of ten offsets each, with one batch whose newest record has the timestamp that is given."""

    def __init__(self, directory: Path, *times: int) -> None:
        self.directory = directory
        self.disk = RealDisk(workers=1)
        self._files = FileCache(self.disk)
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.summary = SegmentSummary(self.segments, self.bases)
        for time in times:
            self.add(time)

    def add(self, timestamp_ms: int) -> None:
        base = self.bases[-1] + 10 if self.bases else 0
        self.segments.append(self.made(base, timestamp_ms))
        self.bases.append(base)

    def roll(self, timestamp_ms: int) -> None:
        self.add(timestamp_ms)
        self.summary.rolled(self.segments[-2])

    def made(self, base: int, timestamp_ms: int) -> Segment:
        segment = Segment(self._files, self.directory, base, created_ms=0)
        segment.open(create=True)
        data = bytearray(batch(b"v" * (base + 1), timestamp_ms=timestamp_ms))
        patch_base_offset(data, base)
        segment.index_batch(header_of(bytes(data)), segment.write([data]), 4096)
        return segment

    def unread(self, number: int) -> Segment:
        """A segment whose indexes were let go, and whose newest timestamp is not known."""
        segment = self.segments[number]
        segment.seal()
        segment.indexes._unload()
        segment.indexes._newest_was_known = False
        return segment

    def abort(self, number: int) -> None:
        base = self.bases[number]
        self.segments[number].indexes.transactions.append(AbortedTransaction(5, base, base + 1, base))

    def aborted(self, base_offset: int = 0) -> list[int]:
        return [each.base_offset for each in self.summary.with_aborted(self.disk, self.directory, base_offset)]

    def check(self) -> None:
        """The kept totals are the true ones."""
        assert self.summary.size_bytes == sum(each.size_bytes for each in self.segments)
        times = [each.indexes.max_timestamp_ms for each in self.segments]
        assert self.summary.newest() == max(times)
        for number in range(len(times)):
            for time in range(-1, 12):
                found = next((at for at in range(number, len(times)) if times[at] >= time), None)
                assert self.summary.since(time, number) == found, (time, number)


@pytest.mark.parametrize(
    "times", [(5,), (3, 5), (5, 3), (1, 3, 5, 7), (7, 5, 3, 1), (4, 8, 2, 8, 6), (-1, -1, 4), (-1,)]
)
def test_the_newest_and_the_first_so_new_are_found(tmp_path: Path, times: tuple[int, ...]) -> None:
    Shelf(tmp_path, *times).check()


@pytest.mark.parametrize("times", [(1, 3, 5, 7), (7, 5, 3, 1), (4, 8, 2, 8, 6)])
def test_totals_stay_right_while_segments_come_and_go(tmp_path: Path, times: tuple[int, ...]) -> None:
    shelf = Shelf(tmp_path, *times)
    shelf.check()
    shelf.roll(5)
    shelf.check()
    del shelf.segments[-2:], shelf.bases[-2:]
    shelf.summary.truncated()
    shelf.check()
    del shelf.segments[:1], shelf.bases[:1]
    shelf.summary.dropped()
    shelf.check()
    shelf.segments[0].indexes.max_timestamp_ms = 11
    shelf.summary.repaired()
    shelf.check()
    shelf.roll(9)
    shelf.check()


def test_the_active_segment_goes_on_after_it_was_looked_at(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 4, 8, 2)
    for newest in (2, 7, 9, 11):
        shelf.segments[-1].indexes.max_timestamp_ms = newest
        shelf.check()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_in_the_place_of_others_is_looked_at(tmp_path: Path, number: int) -> None:
    shelf = Shelf(tmp_path, 4, 8, 2, 9, 6)
    shelf.check()
    shelf.segments[number : number + 2] = [shelf.made(shelf.bases[number], 1)]
    end = shelf.bases[number] + 20
    del shelf.bases[number + 1]
    shelf.summary.replaced(number, end)
    shelf.check()


def test_unread_segments_are_named_before_an_answer_depends_on_them(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 4, 8, 2, 6)
    second = shelf.unread(1)
    assert shelf.summary.newest() is second
    assert shelf.summary.since(4, 0) == 0
    assert shelf.summary.since(4, 1) is second
    assert shelf.summary.since(5, 0) is second
    assert shelf.summary.since(2, 2) == 2, "what is before does not matter"
    shelf.segments[1].indexes.load()
    shelf.check()


def test_the_active_segment_may_not_be_read_either(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 4, 8)
    active = shelf.unread(1)
    assert shelf.summary.newest() is active
    assert shelf.summary.since(4, 0) == 0
    assert shelf.summary.since(5, 0) is active


# -- aborted transactions --------------------------------------------------------------------------------------------


def test_segments_with_aborted_transactions_are_found_from_an_offset_on(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1, 2, 3, 4)
    assert shelf.aborted() == []
    shelf.summary.invalidate_aborted()
    for number in (0, 2):
        shelf.abort(number)
    assert shelf.aborted() == [0, 20]
    assert (shelf.aborted(1), shelf.aborted(20), shelf.aborted(21)) == ([20], [20], [])
    for _ in range(2):
        shelf.abort(3)
        shelf.summary.record_aborted()
        assert shelf.aborted() == [0, 20, 30]


def test_damaged_or_unloaded_segments_may_have_aborted_transactions(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1, 2, 3, 4)
    shelf.segments[0].indexes.transactions_damaged = True
    for number in (1, 2):
        if number == 1:
            shelf.abort(number)
        shelf.unread(number)
    assert (tmp_path / "00000000000000000010.txnindex").exists()
    assert shelf.aborted() == [0, 10]


def test_no_totals_are_kept_before_they_are_asked_for(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1, 2)
    shelf.abort(0)
    shelf.summary.record_aborted()
    assert shelf.aborted() == [0]


def with_three(tmp_path: Path) -> Shelf:
    """Segments 0, 20 and 30 have aborted transactions."""
    shelf = Shelf(tmp_path, 1, 2, 3, 4)
    for number in (0, 2, 3):
        shelf.abort(number)
    assert shelf.aborted() == [0, 20, 30]
    return shelf


def test_truncated_or_dropped_segments_have_no_aborted_transactions(tmp_path: Path) -> None:
    shelf = with_three(tmp_path)
    del shelf.segments[3:], shelf.bases[3:]
    shelf.summary.truncated()
    assert shelf.aborted() == [0, 20]
    del shelf.segments[:2], shelf.bases[:2]
    shelf.summary.dropped()
    assert shelf.aborted() == [20]


@pytest.mark.parametrize(("number", "count", "after"), [(0, 2, [0, 20, 30]), (1, 1, [0, 20, 30]), (1, 2, [0, 10, 30])])
def test_replacing_segments_may_have_aborted_transactions(
    tmp_path: Path, number: int, count: int, after: list[int]
) -> None:
    shelf = with_three(tmp_path)
    end = shelf.bases[number] + 10 * count
    shelf.segments[number : number + count] = [shelf.made(shelf.bases[number], 1)]
    del shelf.bases[number + 1 : number + count]
    shelf.summary.replaced(number, end)
    assert shelf.aborted() == after


# -- durability ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recovery_point", "first"), [(0, 0), (9, 0), (10, 1), (39, 3), (40, 3)])
def test_segments_beyond_the_recovery_point_are_not_durable(tmp_path: Path, recovery_point: int, first: int) -> None:
    shelf = Shelf(tmp_path, 1, 2, 3, 4)
    assert shelf.summary.pop_undurable(recovery_point) == shelf.segments, "nothing is known yet"
    assert shelf.summary.pop_undurable(recovery_point) == shelf.segments[first:]
    shelf.summary.mark_undurable()
    assert shelf.summary.pop_undurable(recovery_point) == shelf.segments


def test_when_all_are_distrusted_the_first_is_too_however_short_it_is(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1)
    shelf.segments.append(shelf.made(1, 2))
    shelf.bases.append(1)
    shelf.summary.pop_undurable(2)
    shelf.summary.mark_undurable()
    assert shelf.summary.pop_undurable(2) == shelf.segments


def test_a_formerly_active_segment_may_not_be_durable(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 1, 2)
    shelf.summary.pop_undurable(20)
    shelf.roll(3)
    shelf.roll(4)
    assert shelf.summary.pop_undurable(40) == shelf.segments[1:]
    assert shelf.summary.pop_undurable(40) == shelf.segments[3:]
