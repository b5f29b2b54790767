"""Batches out of records: their bytes, and that another library reads them as they were meant."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.util import calc_crc32c_py

from odradek.record.batch import COMPRESSION_NAMES, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, crc_is_valid
from odradek.record.builder import build_batch, build_empty_batch, encode_record
from odradek.record.reader import read_records
from odradek.record.record import Record

# attributes, timestamp delta, offset delta, key, value, headers; each behind its length
FIRST = bytes.fromhex("1e 00 00 00 01 04 6869 04 02 68 02 78 02 6e 01")
SECOND = bytes.fromhex("0e 00 05 04 02 6b 01 00")
RECORDS = [
    Record(None, b"hi", (("h", b"x"), ("n", None)), timestamp_ms=1000, offset=50),
    Record(b"k", None, timestamp_ms=997, offset=52),
]


def test_the_bytes_of_a_batch() -> None:
    """Two records, one of which is null in every way, with a gap between their offsets."""
    found = build_batch(
        RECORDS, base_offset=50, leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=11, transactional=True
    )
    behind_crc = struct.pack(">hiqqqhii", 0x10, 2, 1000, 1000, 7, 2, 11, 2) + FIRST + SECOND
    assert found == (struct.pack(">qiibI", 50, 49 + len(FIRST + SECOND), 3, 2, calc_crc32c_py(behind_crc)) + behind_crc)


def test_absent_fields_are_none() -> None:
    header = BatchHeader.read(build_batch([Record(b"k", b"v")]))
    assert header[:3] == (0, header.batch_length, -1)
    assert header[3:4] + header[5:] == (2, 0, 0, -1, -1, -1, -1, -1, 1)
    assert Record() == Record(None, None, (), -1, -1)


def test_every_property_has_its_bit() -> None:
    batch = build_batch([Record()], timestamp_type=LOG_APPEND_TIME, control=True, compression="lz4")
    assert BatchHeader.read(batch).attributes == 0x2B


def test_offsets_follow_each_other_where_records_have_none() -> None:
    records = [Record(), Record(offset=45), Record(), Record(offset=47)]
    batch = build_batch(records, base_offset=40)
    assert [record.offset for record in read_records(batch)] == [40, 45, 46, 47]
    assert BatchHeader.read(batch).last_offset_delta == 7
    assert [record.offset for record in read_records(build_batch([Record(offset=0)]))] == [0]


@pytest.mark.parametrize("offsets", [(39,), (40, 40), (42, 41), (41, -1, 42)])
def test_offsets_that_do_not_rise_are_refused(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not follow"):
        build_batch([Record(offset=offset) for offset in offsets], base_offset=40)


def test_no_record_is_no_batch() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_the_largest_timestamp_is_of_any_record() -> None:
    header = BatchHeader.read(build_batch([Record(timestamp_ms=time) for time in (5, 9, 2)]))
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)


def test_a_record_is_encoded_behind_its_length() -> None:
    """Names count in bytes, not in letters; empty is not null."""
    assert encode_record(RECORDS[0], 0, 0) == FIRST[1:]
    record = Record(b"", b"", (("é", b""),))
    assert encode_record(record, -1, 64) == bytes.fromhex("00 01 8001 00 00 02 04 c3a9 00")


# -- another library -------------------------------------------------------------------------------------------------


def as_pairs(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp_ms, each.key, each.value, list(each.headers)) for each in records]


MANY = [
    Record(None if each % 3 else b"k%d" % each, b"value %d" % each * 20, (("h", b"x"),), 1000 + each, 7 + each)
    for each in range(300)
]


@pytest.mark.parametrize("codec", COMPRESSION_NAMES)
def test_another_library_reads_what_is_built(codec: str) -> None:
    batch = build_batch(MANY, base_offset=7, compression=codec, producer_id=9, producer_epoch=4, base_sequence=3)
    theirs = _DefaultRecordBatchPy(batch)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset, theirs.magic) == (7, 307, 2)
    assert theirs.compression_type == COMPRESSION_NAMES.index(codec)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 4, 3)
    found = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in theirs]
    assert found == as_pairs(MANY)


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_another_library_are_read(codec: int) -> None:
    builder = _DefaultRecordBatchBuilderPy(2, codec, True, 9, 4, 3, 1 << 20)
    for place, record in enumerate(MANY):
        builder.append(place, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = BatchHeader.read(batch)
    assert (header.compression, header.is_transactional, header.producer_id) == (codec, True, 9)
    assert as_pairs(read_records(batch)) == [(each[0] - 7, *each[1:]) for each in as_pairs(MANY)]


def test_an_empty_batch_takes_one_offset_and_says_nothing_else() -> None:
    data = build_empty_batch(41)
    header = BatchHeader.read(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (41, 41, 0)
    assert header.size_bytes == len(data) == HEADER_BYTES and crc_is_valid(data, header)
    assert (header.base_timestamp, header.max_timestamp, header.attributes) == (-1, -1, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.magic, header.partition_leader_epoch, read_records(data, header)) == (2, -1, [])
