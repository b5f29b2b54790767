"""Raw batches to Arrow: against the broker's own builder, on generated records and on damaged bytes. No Spark here."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.record.batch import HEADER_BYTES, seal
from odradek.record.builder import build_batch
from odradek.record.record import Record
from pyspark_odradek.record.decode import (
    MAX_ROWS,
    AbortedTransaction,
    Decoder,
    RecordFormatError,
    VisibleBatches,
    whole_batches,
)
from pyspark_odradek.source.schema import source_schema

SCHEMA = to_arrow_schema(source_schema(True), timezone="UTC")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

texts = st.text(max_size=8)
some_bytes = st.none() | st.binary(max_size=300)
record_parts = st.tuples(some_bytes, some_bytes, st.lists(st.tuples(texts, some_bytes), max_size=3), st.integers(0, 9))


def decoded(fetched: bytes, start: int = 0, end: int = 1 << 62, aborted: Any = ()) -> list[dict[str, Any]]:
    view = memoryview(fetched)
    visible = VisibleBatches([AbortedTransaction(*pair) for pair in aborted])
    shown = [batch for batch in whole_batches(view) if visible.shows(batch, view)]
    return [row for rows in Decoder(SCHEMA, "t", 3, start, end).decode(view, shown) for row in rows.to_pylist()]


def plain(count: int, base_offset: int = 0, **settings: Any) -> bytes:
    records = [Record(b"k", b"%d" % (base_offset + n), (), timestamp_ms=n) for n in range(count)]
    return build_batch(records, base_offset=base_offset, **settings)


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(record_parts, min_size=1, max_size=12), min_size=1, max_size=4), st.data())
def test_generated_records_come_out_as_they_went_in(batches: Any, data: Any) -> None:
    """Any keys, values and headers, null and empty; gaps between offsets; each batch with a codec of its own."""
    fetched, expected, offset = b"", [], 1000
    for parts in batches:
        records = []
        base = offset
        for key, value, headers, gap in parts:
            offset += gap
            time_ms = data.draw(st.integers(-(10**12), 4 * 10**12))
            records.append(Record(key, value, tuple(headers), timestamp_ms=time_ms, offset=offset))
            pairs = [{"key": name, "value": content} for name, content in headers] or None
            expected.append((offset, key, value, pairs, time_ms))
            offset += 1
        fetched += build_batch(records, base_offset=base, compression=data.draw(st.sampled_from(CODECS)))
    found = [(r["offset"], r["key"], r["value"], r["headers"], r["timestamp"]) for r in decoded(fetched)]
    as_ms = [(*row[:4], round(row[4].timestamp() * 1000)) for row in found]
    assert as_ms == expected


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_asked_range_is_returned(codec: str) -> None:
    fetched = plain(10, 0, compression=codec) + plain(10, 10, compression=codec) + plain(10, 20, compression=codec)
    assert offsets(decoded(fetched, 7, 22)) == list(range(7, 22))
    assert offsets(decoded(fetched, 30, 40)) == []


def test_large_groups_are_cut_into_arrow_batches() -> None:
    view = memoryview(plain(MAX_ROWS + 5))
    sizes = [rows.num_rows for rows in Decoder(SCHEMA, "t", 0, 0, 1 << 62).decode(view, list(whole_batches(view)))]
    assert sizes == [MAX_ROWS, 5]


def test_a_batch_that_the_broker_has_cut_is_left_out() -> None:
    whole, second = plain(3), plain(3, 3)
    for size in range(len(second)):
        assert offsets(decoded(whole + second[:size])) == [0, 1, 2]


def test_log_append_time_stands_for_every_record() -> None:
    records = [Record(None, None, (), timestamp_ms=time_ms) for time_ms in (5, 9)]
    rows = decoded(build_batch(records, timestamp_type=1))
    assert {row["timestampType"] for row in rows} == {1}
    assert {round(row["timestamp"].timestamp() * 1000) for row in rows} == {9}


def transaction(producer_id: int, base_offset: int, count: int = 2) -> bytes:
    return plain(count, base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    record = Record(key, b"\0\0\0\0\0\0", (), timestamp_ms=0)
    batch: bytes = build_batch(
        [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )
    return batch


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    fetched = b"".join(
        [
            transaction(7, 0),
            transaction(8, 2),
            plain(1, 4),
            marker(7, 5, commit=False),
            transaction(7, 6),
            marker(8, 8, commit=True),
            marker(7, 9, commit=True),
            transaction(8, 10),
            marker(8, 12, commit=False),
        ]
    )
    assert offsets(decoded(fetched, aborted=[(8, 10), (7, 0)])) == [2, 3, 4, 6, 7]
    assert offsets(decoded(fetched)) == [0, 1, 2, 3, 4, 6, 7, 10, 11], "read_uncommitted: all but the markers"


def test_a_fetch_that_begins_inside_of_an_aborted_transaction() -> None:
    fetched = transaction(7, 2) + marker(7, 4, commit=False) + transaction(7, 5)
    assert offsets(decoded(fetched, aborted=[(7, 0)])) == [5, 6]


def test_every_flipped_bit_is_reported(rounds: int = 300) -> None:
    """The checksum covers all but the first 17 bytes; those are lengths, offsets, epoch, magic and the sum itself."""
    whole = plain(20, compression="lz4")
    chance = random.Random(4)
    for _ in range(rounds):
        damaged = bytearray(whole)
        damaged[chance.randrange(17, len(whole))] ^= 1 << chance.randrange(8)
        with pytest.raises(RecordFormatError, match="checksum"):
            decoded(bytes(damaged))


def test_damage_behind_a_good_checksum_is_reported_or_harmless() -> None:
    """A broken producer sends a valid checksum, so that only the structure shows the damage."""
    records = [Record(b"key", b"value" * 5, (("h", b"1"),), timestamp_ms=n) for n in range(10)]
    whole = build_batch(records)
    reported = 0
    for position in range(HEADER_BYTES, len(whole)):
        for bit in (0, 6, 7):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            seal(damaged)
            try:
                decoded(bytes(damaged))
            except RecordFormatError:
                reported += 1
    assert reported >= 200, "flips of sizes and counts, at least; flips inside of keys and values are other data"


def test_an_old_format_and_an_impossible_header_are_reported() -> None:
    whole = bytearray(plain(1))
    whole[16] = 1
    with pytest.raises(RecordFormatError, match="record format v1"):
        decoded(bytes(whole))
    whole = bytearray(plain(1))
    whole[8:12] = (3).to_bytes(4, "big")
    with pytest.raises(RecordFormatError, match="impossible"):
        decoded(bytes(whole))


def test_a_record_of_an_old_format_is_smaller_than_the_header_of_a_batch() -> None:
    """One that stands last would be taken for a batch that the broker has cut, and waited for."""
    old = (7).to_bytes(8, "big") + (22).to_bytes(4, "big") + b"CRC!" + b"\0\0" + b"\xff\xff\xff\xff" + b"\0\0\0\1v"
    with pytest.raises(RecordFormatError, match="batch at offset 7 has record format v0"):
        decoded(plain(2) + old)


def test_of_several_batches_the_damaged_one_is_named() -> None:
    batches = [bytearray(plain(3, base_offset=first)) for first in (0, 3, 6)]
    batches[1][HEADER_BYTES] ^= 2
    seal(batches[1])
    with pytest.raises(RecordFormatError, match=r"^the batch at offset 3 is damaged: "):
        decoded(b"".join(batches))


def test_a_compression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark_odradek.record import decode

    monkeypatch.setattr(decode, "MAX_BATCH_BYTES", 1 << 20)
    bomb = build_batch([Record(None, b"\0" * (2 << 20), (), timestamp_ms=0)], compression="zstd")
    with pytest.raises(RecordFormatError, match="batch at offset 0"):
        decoded(bomb)
