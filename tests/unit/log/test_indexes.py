"""The indexes beside a segment: their bytes, look-ups, truncation, and damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.index import (
    INDEX_ENTRY_BYTES,
    AbortedTransaction,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)

DISK = RealDisk(workers=1)
BASE = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def offset_index(path: Path, entries: list[tuple[int, int]] | None = None) -> OffsetIndex:
    """Entries: the last offset of a batch, and its position."""
    index = OffsetIndex(DISK, path, BASE)
    for offset, position in entries if entries is not None else [(1004, 100), (1009, 250), (1019, 400)]:
        index.append(offset, position)
    return index


def time_index(path: Path, entries: list[tuple[int, int]] | None = None) -> TimeIndex:
    """Entries: a timestamp, and the offset up to which nothing is newer."""
    index = TimeIndex(DISK, path, BASE)
    for timestamp, offset in entries if entries is not None else [(50, 1003), (70, 1003), (90, 1012)]:
        assert index.maybe_append(timestamp, offset)
    return index


FIRST, SECOND = AbortedTransaction(7, 1000, 1005, 1000), AbortedTransaction(2**40, 1003, 1010, 1011)


def transaction_index(path: Path) -> TransactionIndex:
    index = TransactionIndex(DISK, path)
    index.append(FIRST)
    index.append(SECOND)
    return index


# -- files -----------------------------------------------------------------------------------------------------------

AnyIndex = OffsetIndex | TimeIndex | TransactionIndex
MADE: dict[str, tuple[Callable[[Path], AnyIndex], bytes]] = {
    "offset": (offset_index, struct.pack(">6i", 4, 100, 9, 250, 19, 400)),
    "time": (time_index, struct.pack(">qiqiqi", 50, 3, 70, 3, 90, 12)),
    "transaction": (
        transaction_index,
        struct.pack(">hqqqqhqqqq", 0, 7, 1000, 1005, 1000, 0, 2**40, 1003, 1010, 1011),
    ),
}


def loaded(index: AnyIndex) -> AnyIndex:
    """The same index, out of its file."""
    if isinstance(index, OffsetIndex):
        of_offsets = index.unloaded()
        of_offsets.load(log_bytes=10_000)
        return of_offsets
    other = index.unloaded()
    other.load()
    return other


def contents(index: AnyIndex) -> object:
    if isinstance(index, OffsetIndex):
        return [(index.position_for(offset), len(index)) for offset in range(BASE, BASE + 30)]
    if isinstance(index, TimeIndex):
        return index.last(), len(index), [index.entry_before(time) for time in range(100)]
    assert isinstance(index, TransactionIndex)
    return index.entries


@pytest.mark.parametrize(("make", "data"), MADE.values(), ids=MADE.keys())
class TestFiles:
    """The file of every index."""

    def test_entries_reach_the_file_when_it_is_flushed(
        self, path: Path, make: Callable[[Path], AnyIndex], data: bytes
    ) -> None:
        index = make(path)
        assert index.size_bytes == len(data) and not path.exists()
        index.flush()
        index.flush(sync=True)
        assert index.size_bytes == len(data) and path.read_bytes() == data
        again = loaded(index)
        assert contents(again) == contents(index) and again.size_bytes == len(data)

    def test_later_entries_are_appended_to_the_file(
        self, path: Path, make: Callable[[Path], AnyIndex], data: bytes
    ) -> None:
        make(path).flush()
        index = loaded(make(path))
        if isinstance(index, OffsetIndex):
            index.append(1025, 600)
        elif isinstance(index, TimeIndex):
            index.maybe_append(95, 1025)
        elif isinstance(index, TransactionIndex):
            index.append(AbortedTransaction(9, 1020, 1025, 1026))
        index.flush(sync=True)
        index.flush()
        assert path.read_bytes()[: len(data)] == data
        assert contents(loaded(index)) == contents(index)
        assert path.stat().st_size == index.size_bytes > len(data)

    def test_a_missing_file_has_no_entries(self, path: Path, make: Callable[[Path], AnyIndex], data: bytes) -> None:
        index = loaded(make(path))
        assert index.size_bytes == 0 and not path.exists()
        for sync in (False, True):
            index.flush(sync=sync)
            assert not path.exists(), "nothing makes an empty file"
        index.flush(create=True)
        assert path.read_bytes() == b""
        path.unlink()
        index.flush(create=True)
        assert not path.exists(), "it was made once"

    def test_a_part_of_an_entry_is_damage(self, path: Path, make: Callable[[Path], AnyIndex], data: bytes) -> None:
        for damaged in (data + b"\0", data[:-1]):
            path.write_bytes(damaged)
            with pytest.raises(CorruptIndexError, match="not whole entries"):
                loaded(make(path))

    def test_a_cleared_index_empties_its_file(self, path: Path, make: Callable[[Path], AnyIndex], data: bytes) -> None:
        index = make(path)
        index.clear()
        assert index.size_bytes == 0
        index.flush()
        assert not path.exists()
        index = make(path)
        index.flush()
        index.clear()
        assert path.read_bytes() == b"" and index.size_bytes == 0
        assert contents(loaded(index)) == contents(index)


# -- positions of offsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "position"),
    [(999, 0), (1000, 0), (1003, 0), (1004, 100), (1008, 100), (1009, 250), (1018, 250), (1019, 400), (5000, 400)],
)
def test_a_position_is_at_or_before_the_batch(path: Path, offset: int, position: int) -> None:
    assert offset_index(path).position_for(offset) == position


@pytest.mark.parametrize(
    ("position", "before", "after"),
    [(0, 0, [100, 250, 400]), (99, 0, [100, 250, 400]), (100, 100, [250, 400]), (399, 250, [400]), (400, 400, [])],
)
def test_boundaries_are_known_by_position(path: Path, position: int, before: int, after: list[int]) -> None:
    assert offset_index(path).boundary_before(position) == before
    assert offset_index(path).positions_after(position) == after


def test_an_empty_index_knows_nothing(path: Path) -> None:
    index = offset_index(path, [])
    assert (len(index), index.position_for(1000), index.boundary_before(5), index.last_position()) == (0, 0, 0, 0)
    assert offset_index(path).last_position() == 400
    assert len(offset_index(path)) == 3


@pytest.mark.parametrize(
    ("end_offset", "end_position", "count"),
    [
        (1020, 401, 3),
        (1019, 401, 2),
        (1020, 400, 2),
        (1010, 1000, 2),
        (1009, 1000, 1),
        (9999, 250, 1),
        (1004, 1000, 0),
        (9999, 100, 0),
        (9999, 101, 1),
    ],
)
def test_a_cut_drops_positions_behind_an_offset_or_a_position(
    path: Path, end_offset: int, end_position: int, count: int
) -> None:
    for is_flushed in (True, False):
        index = offset_index(path)
        if is_flushed:
            index.flush()
        index.truncate(end_offset, end_position)
        assert len(index) == count and index.size_bytes == 8 * count
        index.flush()
        if count or is_flushed:
            assert path.read_bytes() == MADE["offset"][1][: 8 * count]
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("entries", "log_bytes", "is_sound"),
    [
        ([(0, 0)], 1, True),
        ([(0, 0)], 0, False),
        ([(4, 100)], 101, True),
        ([(4, 100)], 100, False),
        ([(4, 100), (9, 250)], 251, True),
        ([(4, 100), (9, 250)], 250, False),
        ([(4, 100), (9, 100)], 9999, False),
        ([(4, 100), (9, 99)], 9999, False),
        ([(-1, 100)], 9999, False),
        ([], 0, True),
    ],
)
def test_positions_rise_and_are_in_the_log(
    path: Path, entries: list[tuple[int, int]], log_bytes: int, is_sound: bool
) -> None:
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    index = OffsetIndex(DISK, path, BASE)
    if is_sound:
        index.load(log_bytes=log_bytes)
        assert len(index) == len(entries)
    else:
        with pytest.raises(CorruptIndexError):
            index.load(log_bytes=log_bytes)


# -- times -----------------------------------------------------------------------------------------------------------


def test_an_entry_of_the_time_index_is_the_larger_one() -> None:
    assert INDEX_ENTRY_BYTES == 12


@pytest.mark.parametrize(
    ("timestamp", "offset", "is_newer"),
    [(91, 1012, True), (90, 1013, False), (89, 1013, False), (91, 1011, False), (91, 1013, True)],
)
def test_only_what_is_newer_is_an_entry(path: Path, timestamp: int, offset: int, is_newer: bool) -> None:
    index = time_index(path)
    assert index.maybe_append(timestamp, offset) is is_newer
    assert len(index) == 3 + is_newer and index.size_bytes == 12 * len(index)
    assert index.last() == ((timestamp, offset) if is_newer else (90, 1012))


def test_no_time_is_no_entry(path: Path) -> None:
    index = time_index(path, [])
    assert index.last() is None and index.entry_before(10) is None
    assert index.maybe_append(-1, 1000) is False
    assert index.maybe_append(0, 1000) is True
    assert index.last() == (0, 1000)


@pytest.mark.parametrize(
    ("timestamp", "entry"),
    [(50, None), (51, (50, 1003)), (70, (50, 1003)), (71, (70, 1003)), (90, (70, 1003)), (99, (90, 1012))],
)
def test_the_last_older_entry_is_found(path: Path, timestamp: int, entry: tuple[int, int] | None) -> None:
    assert time_index(path).entry_before(timestamp) == entry


@pytest.mark.parametrize(("end_offset", "count"), [(1013, 3), (1012, 2), (1004, 2), (1003, 0), (0, 0)])
def test_a_cut_drops_times_behind_an_offset(path: Path, end_offset: int, count: int) -> None:
    index = time_index(path)
    index.flush()
    index.truncate(end_offset)
    assert len(index) == count and index.size_bytes == 12 * count
    index.flush()
    assert path.read_bytes() == MADE["time"][1][: 12 * count]


@pytest.mark.parametrize(
    ("entries", "is_sound"),
    [
        ([(0, 0)], True),
        ([(5, 0), (5, 0)], True),
        ([(5, 2), (4, 3)], False),
        ([(5, 2), (6, 1)], False),
        ([(-1, 0)], False),
        ([(0, -1)], False),
    ],
)
def test_times_and_offsets_rise(path: Path, entries: list[tuple[int, int]], is_sound: bool) -> None:
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    index = TimeIndex(DISK, path, BASE)
    if is_sound:
        index.load()
        assert len(index) == len(entries)
    else:
        with pytest.raises(CorruptIndexError):
            index.load()


# -- aborted transactions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "is_sound"),
    [
        ([(0, 7, 0, 1, 0)], True),
        ([(1, 7, 0, 1, 0)], False),
        ([(0, 7, 1, 1, 0)], False),
        ([(0, 7, 2, 1, 0)], False),
        ([(0, 7, 0, 5, 0), (0, 8, 1, 6, 0)], True),
        ([(0, 7, 0, 5, 0), (0, 8, 1, 5, 0)], False),
        ([(0, 7, 0, 5, 0), (0, 8, 1, 4, 0)], False),
    ],
)
def test_markers_rise_and_are_behind_their_records(path: Path, entries: list[tuple[int, ...]], is_sound: bool) -> None:
    path.write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    index = TransactionIndex(DISK, path)
    if is_sound:
        index.load()
        assert [tuple(each) for each in index.entries] == [entry[1:] for entry in entries]
    else:
        with pytest.raises(CorruptIndexError):
            index.load()


@pytest.mark.parametrize(("end_offset", "count"), [(1011, 2), (1010, 1), (1006, 1), (1005, 0)])
@pytest.mark.parametrize("flushed", [0, 1, 2])
def test_a_cut_drops_transactions_whose_marker_is_behind_it(
    path: Path, flushed: int, end_offset: int, count: int
) -> None:
    index = TransactionIndex(DISK, path)
    for number, entry in enumerate((FIRST, SECOND)):
        if number == flushed:
            index.flush()
        index.append(entry)
    if flushed == 2:
        index.flush()
    index.truncate(end_offset)
    assert index.entries == [FIRST, SECOND][:count]
    assert index.size_bytes == 34 * count
    index.flush()
    assert (path.read_bytes() if path.exists() else b"") == MADE["transaction"][1][: 34 * count]


def test_an_index_knows_its_unwritten_and_unsynced_entries(path: Path) -> None:
    index = TransactionIndex(DISK, path)
    assert index.is_written and not index.pop_unsynced()
    index.mark_unsynced()
    assert not index.pop_unsynced(), "it has nothing"
    index.append(FIRST)
    assert not index.is_written
    assert index.pop_unsynced() and not index.pop_unsynced()
    index.flush(sync=True)
    assert index.is_written and not index.pop_unsynced()
    again = loaded(index)
    assert isinstance(again, TransactionIndex)
    assert not again.pop_unsynced()
    again.mark_unsynced()
    assert again.pop_unsynced()
