"""Batches and records are read from bytes, or refused as damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import LOG_APPEND_TIME, BatchHeader
from odradek.record.builder import build_batch
from odradek.record.compression import compress
from odradek.record.reader import (
    MAX_RECORDS_BYTES,
    RecordOutline,
    outline_records,
    parse_records,
    read_batches,
    read_records,
    records_bytes,
)
from odradek.record.record import Record
from odradek.record.varint import zigzag
from tests.support.models.hand_made import batch_bytes, blob, framed, header_fields, record_bytes

INT64_MAX = 2**63 - 1

# -- batches ---------------------------------------------------------------------------------------------------------

ONE, TWO = batch_bytes(record_bytes()), batch_bytes(record_bytes(value=b"longer"))
EMPTY = batch_bytes(b"", 0)
# Whole batches, and bytes behind them that are no batch.
SEQUENCES = {
    "nothing": ([], b""),
    "one": ([ONE], b""),
    "two": ([ONE, TWO], b""),
    "a header alone, as compaction leaves it": ([EMPTY], b""),
    "a header alone among others": ([ONE, EMPTY, TWO], b""),
    "half a header behind": ([TWO], ONE[:60]),
    "a header behind": ([TWO, ONE], TWO[:61]),
    "all but one byte behind": ([TWO], ONE[:-1]),
    "a length below that of a header": ([ONE], batch_bytes(b"x" * 100, batch_length=48) + TWO),
    "a negative length": ([ONE], batch_bytes(b"x" * 100, batch_length=-1) + TWO),
}


@pytest.mark.parametrize(("batches", "rest"), SEQUENCES.values(), ids=SEQUENCES.keys())
def test_whole_batches_are_read_up_to_what_is_none(batches: list[bytes], rest: bytes) -> None:
    positions = [sum(map(len, batches[:place])) for place in range(len(batches))]
    expected = [(at, BatchHeader.read(batch)) for at, batch in zip(positions, batches, strict=True)]
    assert list(read_batches(b"".join(batches) + rest)) == expected


# -- records ---------------------------------------------------------------------------------------------------------

HEADERS = zigzag(3) + blob("é".encode()) + blob(b"x") + blob(b"") + blob(b"") + blob(b"n") + blob(None)
# The parts of records as they are written -> the record.
WHOLE = {
    "plain": (record_bytes(2, time=5), Record(b"k", b"v", (), 1005, 102)),
    "null": (record_bytes(key=None, value=None), Record(None, None, (), 1000, 100)),
    "empty": (record_bytes(key=b"", value=b""), Record(b"", b"", (), 1000, 100)),
    "a null of another length": (
        framed(b"\0\0\0" + zigzag(-2) + zigzag(-9) + b"\0"),
        Record(None, None, (), 1000, 100),
    ),
    "headers": (record_bytes(headers=HEADERS), Record(b"k", b"v", (("é", b"x"), ("", b""), ("n", None)), 1000, 100)),
    "before the first": (record_bytes(-1, time=-1), Record(b"k", b"v", (), 999, 99)),
    "large": (record_bytes(key=b"k" * 64, value=b"v" * 9000), Record(b"k" * 64, b"v" * 9000, (), 1000, 100)),
    "attributes, which mean nothing": (record_bytes(attributes=0xFF), Record(b"k", b"v", (), 1000, 100)),
}
PLACE = header_fields(base_offset=100, base_timestamp=1000)


@pytest.mark.parametrize("held", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("written", "record"), WHOLE.values(), ids=WHOLE.keys())
def test_a_record_is_read(written: bytes, record: Record, held: type[bytes]) -> None:
    (found,) = parse_records(held(written), PLACE)
    assert found == record
    assert type(found.value) in (bytes, type(None)) and type(found.key) in (bytes, type(None))
    (outline,) = outline_records(held(written), PLACE)
    for content, position, size in (
        (record.key, outline.key_position, outline.key_bytes),
        (record.value, outline.value_position, outline.value_bytes),
    ):
        assert (None if size < 0 else written[position : position + size]) == content


def test_an_outline_says_where_the_parts_lie() -> None:
    written = record_bytes(1, time=2, key=b"key", value=b"value", headers=zigzag(1) + blob(b"h") + blob(b"x"))
    assert outline_records(written, PLACE) == [RecordOutline(101, 1002, 5, 3, 9, 5, 1, 15)]


def test_all_records_of_a_batch_are_read() -> None:
    payload = b"".join(written for written, _ in WHOLE.values())
    assert parse_records(payload, PLACE._replace(record_count=len(WHOLE))) == [each for _, each in WHOLE.values()]
    assert parse_records(b"", PLACE._replace(record_count=0)) == []


def test_the_logs_own_time_is_that_of_every_record() -> None:
    header = PLACE._replace(attributes=LOG_APPEND_TIME << 3, max_timestamp=5000)
    (record,) = parse_records(record_bytes(time=7), header)
    assert record.timestamp_ms == 5000


# The bytes in place of one batch of one record -> the error's text.
DAMAGED = {
    "no record": b"",
    "half a record": record_bytes()[:-1],
    "a record too many": record_bytes() + record_bytes(1),
    "a byte behind it": record_bytes() + b"\0",
    "a record longer than its batch": zigzag(9) + record_bytes()[1:],
    "a record shorter than its parts": zigzag(7) + record_bytes()[1:],
    "a record longer than its parts": framed(record_bytes()[1:] + b"\0"),
    "a record of no bytes": zigzag(0) + record_bytes()[1:],
    "a negative length": zigzag(-1) + record_bytes()[1:],
    "a key longer than its record": framed(b"\0\0\0" + zigzag(9) + b"k" + blob(b"v") + b"\0") + bytes(20),
    "a value longer than its record": framed(b"\0\0\0" + blob(b"k") + zigzag(9) + b"v\0") + bytes(20),
    "headers without end": record_bytes(headers=zigzag(2**31 - 1)),
    "fewer headers than it says": record_bytes(headers=zigzag(2) + blob(b"h") + blob(b"x")),
    "more headers than it says": record_bytes(headers=zigzag(1) + (blob(b"h") + blob(b"x")) * 2),
    "less than no headers": record_bytes(headers=zigzag(-1)),
    "a header without a name": record_bytes(headers=zigzag(1) + blob(None) + blob(b"x")),
    "a header whose name is not a text": record_bytes(headers=zigzag(1) + blob(b"\xff") + blob(b"x")),
    "a name longer than its record": record_bytes(headers=zigzag(1) + zigzag(9) + b"h" + blob(b"x")) + bytes(20),
    "a header longer than its record": record_bytes(headers=zigzag(1) + blob(b"h") + zigzag(9) + b"x") + bytes(20),
    "a length of more than 64 bits": b"\xff" * 9 + b"\x7f" + record_bytes(),
}


@pytest.mark.parametrize("payload", DAMAGED.values(), ids=DAMAGED.keys())
def test_bytes_that_are_not_one_record_are_damaged(payload: bytes) -> None:
    for read in (outline_records, parse_records):
        with pytest.raises(ApiError) as refused:
            read(payload, PLACE)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_record_is_named_by_its_number() -> None:
    payload = record_bytes() + record_bytes(1) + record_bytes(2, headers=zigzag(-1))
    with pytest.raises(ApiError, match="record 2 is malformed"):
        outline_records(payload, PLACE._replace(record_count=3))


def test_less_than_no_records_are_damaged() -> None:
    with pytest.raises(ApiError) as refused:
        outline_records(b"", PLACE._replace(record_count=-1))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("base_offset", "delta", "base_timestamp", "time", "fits"),
    [
        (INT64_MAX, 0, 0, 0, True),
        (INT64_MAX, 1, 0, 0, False),
        (-(2**63), 0, 0, 0, True),
        (-(2**63), -1, 0, 0, False),
        (0, 0, INT64_MAX, 0, True),
        (0, 0, INT64_MAX, 1, False),
        (0, 0, -(2**63), 0, True),
        (0, 0, -(2**63), -1, False),
    ],
)
def test_offsets_and_timestamps_have_64_bits(
    base_offset: int, delta: int, base_timestamp: int, time: int, fits: bool
) -> None:
    header = header_fields(base_offset=base_offset, base_timestamp=base_timestamp)
    payload = record_bytes(delta, time=time)
    if fits:
        (outline,) = outline_records(payload, header)
        assert (outline.offset, outline.timestamp_ms) == (base_offset, base_timestamp)
    else:
        with pytest.raises(ApiError, match="64 bits") as refused:
            outline_records(payload, header)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


# -- whole batches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_records_are_decompressed_up_to_a_cap(codec: int) -> None:
    plain = record_bytes(value=b"v" * 500)
    batch = batch_bytes(compress(codec, plain), attributes=codec)
    header = BatchHeader.read(batch)
    assert bytes(records_bytes(batch + b"what follows", header)) == plain
    assert bytes(records_bytes(batch, header, max_output_bytes=len(plain))) == plain
    (record,) = read_records(batch)
    assert read_records(batch, header, max_output_bytes=len(plain)) == [record]
    assert record.value == b"v" * 500
    if codec:
        for read in (records_bytes, read_records):
            with pytest.raises(ApiError) as refused:
                read(batch, header, max_output_bytes=len(plain) - 1)
            assert refused.value.code is ErrorCode.INVALID_RECORD


def test_uncompressed_records_are_not_copied() -> None:
    batch = batch_bytes(record_bytes())
    payload = records_bytes(batch, BatchHeader.read(batch))
    assert isinstance(payload, memoryview) and payload.obj is batch
    assert MAX_RECORDS_BYTES == 2_147_483_639, "Kafka's default of max.decompressed.message.bytes"


def test_the_header_that_is_given_counts() -> None:
    batch = batch_bytes(record_bytes())
    assert [each.offset for each in read_records(batch, BatchHeader.read(batch).with_offset(70, 1))] == [70]


BLOBS = st.none() | st.binary(max_size=80)
RECORDS = st.lists(
    st.builds(
        Record,
        BLOBS,
        BLOBS,
        st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3).map(tuple),
        st.integers(0, 2**60),
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.integers(0, 2**60))
def test_built_batches_are_read(records: list[Record], codec: str, base_offset: int) -> None:
    found = read_records(build_batch(records, compression=codec, base_offset=base_offset))
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in found] == [
        (each.key, each.value, each.headers, each.timestamp_ms) for each in records
    ]
    assert [each.offset for each in found] == list(range(base_offset, base_offset + len(records)))
