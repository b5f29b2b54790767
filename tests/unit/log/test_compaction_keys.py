"""The table of keys of a cleaning: dead records, malformed batches, and the records that stay of a batch."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.compaction.keys import DEAD, ENTRY_BYTES, TOMBSTONE, OffsetMap, live_records, shifted_live_records
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.record.builder import build_batch
from odradek.record.reader import read_records
from odradek.record.record import Record
from tests.support.models.batches import NOW_MS


def payload(*records: Record) -> bytes:
    return build_batch(list(records))[HEADER_BYTES:]


def record(key: bytes | None, value: bytes | None = b"v", delta_ms: int = 0) -> Record:
    return Record(key, value, timestamp_ms=NOW_MS + delta_ms)


def learned(*batches: bytes, counts: tuple[int, ...]) -> OffsetMap:
    table = OffsetMap(1 << 20)
    for data, count in zip(batches, counts, strict=True):
        table.put_batch(data, 0, len(data), count)
    return table


def test_the_newest_record_of_a_key_lives_and_the_keyless_are_dead() -> None:
    first = payload(record(b"a"), record(b"b"), record(None), record(b"c", None))
    table = learned(first, payload(record(b"b", None)), counts=(4, 1))
    assert list(table.marks) == [0, DEAD, DEAD, TOMBSTONE, TOMBSTONE] and len(table) == 3
    before = payload(record(b"a"), record(b"d"), record(b"e", None), record(None))
    assert list(table.get_batch(before, 0, len(before), 4)) == [DEAD, 0, TOMBSTONE, DEAD]


def test_keys_and_values_of_any_size_are_found() -> None:
    """Sizes, deltas of times and of offsets take one byte or more each; every boundary between is here."""
    sizes = (*range(50, 70), *range(115, 135), 8150, *range(8180, 8200))
    for sized in ([(1, size) for size in sizes], [(size, 0) for size in sizes]):
        for delta_ms in (0, 63, 64, 65, 8192, -64, -65):
            data = payload(
                record(b"first"),
                *(
                    record(b"%d" % number + b"k" * key_bytes, b"v" * value_bytes, delta_ms)
                    for number, (key_bytes, value_bytes) in enumerate(sized)
                ),
                *(record(b"%d" % (number % 2)) for number in range(100)),
            )
            count = 1 + len(sizes) + 100
            table = learned(data, counts=(count,))
            assert list(table.marks) == [0] * (1 + len(sizes)) + [DEAD] * 98 + [0] * 2
            assert list(table.get_batch(data, 0, len(data), count)) == [DEAD] * count


@pytest.mark.parametrize("more", [b"\x00", b"\x02\x00", payload(record(b"b"))], ids=["byte", "two", "record"])
def test_a_batch_that_goes_on_behind_its_records_is_corrupt(more: bytes) -> None:
    data = payload(record(b"a")) + more
    for work in (OffsetMap.put_batch, OffsetMap.get_batch):
        with pytest.raises(ApiError) as caught:
            work(OffsetMap(1000), data, 0, len(data), 1)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (payload(record(b"a")), 2),
        (payload(record(b"a"))[:-4], 1),
        (b"", 1),
        (b"\x08\x00\x00\x00\x08abcd\x00", 1),  # a key that reaches behind its record
        (b"\x0a\x00\x00\x00\x02a" + payload(record(b"b")), 2),  # one that ends with its record
        (b"\xff" * 12, 1),  # a size without an end
    ],
    ids=["fewer", "cut", "nothing", "key", "end", "size"],
)
def test_a_batch_that_is_not_so_many_records_is_corrupt(data: bytes, count: int) -> None:
    for work in (OffsetMap.put_batch, OffsetMap.get_batch):
        with pytest.raises(ApiError) as caught:
            work(OffsetMap(1000), data, 0, len(data), count)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_table_has_room_for_what_fits_exactly() -> None:
    data = payload(record(b"abc"), record(b"de"))
    used = 2 * ENTRY_BYTES + 5 + 2  # keys, their bytes, a mark for each record
    more = 3 * (ENTRY_BYTES + 1) + 10
    for budget, fits in ((used + more, True), (used + more - 1, False)):
        table = OffsetMap(budget)
        assert table.has_room(1000, 1000), "a cleaning gets on by one batch at least"
        table.put_batch(data, 0, len(data), 2)
        assert table.used_bytes == used
        assert table.has_room(3, 10) is fits
    table.put_batch(data, 0, len(data), 2)
    assert table.used_bytes == used + 2, "a key counts once"


@pytest.mark.parametrize("deltas", [(0, 5, 9), (0, 9, 5), (0, -4, -2), (0, 63, 64), (0, 20_000, -20_000)])
@pytest.mark.parametrize("size", [3, 54, 70, 9000])
@pytest.mark.parametrize("marks", [(0, DEAD, 0), (DEAD, TOMBSTONE, 0), (DEAD, 0, DEAD), (0, 0, 0), (0, DEAD, DEAD)])
def test_live_records_are_those_that_were_written(deltas: tuple[int, ...], size: int, marks: tuple[int, ...]) -> None:
    records = [record(b"%d" % number, b"v" * size, delta) for number, delta in enumerate(deltas)]
    whole = build_batch(records)
    kept = [number for number, mark in enumerate(marks) if mark != DEAD]
    newest = max(deltas[number] for number in kept)
    for shift_ms, (data, found) in (
        (0, live_records(whole, HEADER_BYTES, bytes(marks))),
        (0, live_records(whole[HEADER_BYTES:], 0, bytes(marks))),  # as of a batch that was decompressed
        (7, shifted_live_records(whole, HEADER_BYTES, bytes(marks), 7)),
    ):
        assert found == newest
        # The rest of a batch may be read as a batch with fewer records.
        header = BatchHeader.read(whole)
        length = header.batch_length + HEADER_BYTES + len(data) - len(whole)
        left = read_records(whole[:HEADER_BYTES] + data, header._replace(record_count=len(kept), batch_length=length))
        expected = [(number, NOW_MS + deltas[number] + shift_ms, b"v" * size) for number in kept]
        assert [(each.offset, each.timestamp_ms, each.value) for each in left] == expected
