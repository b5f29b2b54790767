"""Produce refuses batches by their records: counts, lengths, keys, times, and their decompressed size."""

from __future__ import annotations

import tracemalloc

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import BatchHeader
from odradek.record.compression import compress
from odradek.record.validation import (
    BatchRules,
    InvalidRecordsError,
    RecordError,
    TooLongForLoopError,
    validate_produced,
)
from tests.support.models.batches import NOW_MS, batch
from tests.support.models.hand_made import batch_bytes, record_bytes

INVALID = ErrorCode.INVALID_RECORD
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
PLAIN = BatchRules()
COMPACTED = BatchRules(compacted=True)
HOUR_MS = 3_600_000


def validated(data: bytes, rules: BatchRules = PLAIN, *, now_ms: int = NOW_MS, on_loop: bool = False) -> BatchHeader:
    return validate_produced(data, rules, now_ms=now_ms, on_loop=on_loop)


def refusal(data: bytes, rules: BatchRules = PLAIN, *, now_ms: int = NOW_MS, on_loop: bool = False) -> ApiError:
    with pytest.raises(ApiError) as error:
        validated(data, rules, now_ms=now_ms, on_loop=on_loop)
    return error.value


def record_errors(data: bytes, code: ErrorCode, rules: BatchRules, *, now_ms: int = NOW_MS) -> list[RecordError]:
    """The records that are refused; the text of the error must name the first of them."""
    error = refusal(data, rules, now_ms=now_ms)
    assert isinstance(error, InvalidRecordsError) and error.code is code
    assert error.message == f"One or more records have been rejected: {error.record_errors[0].message}"
    return error.record_errors


def sized(size: int, delta: int = 0) -> bytes:
    """A record of this size, its length included."""
    missing = size - len(record_bytes(delta, value=bytes(size - 20)))
    record = record_bytes(delta, value=bytes(size - 20 + missing))
    assert len(record) == size
    return record


def three(*records: bytes, **fields: int) -> bytes:
    return batch_bytes(b"".join(records), 3, **fields)


# -- that they are what the header says ------------------------------------------------------------------------------

LIES = {
    "a record less": three(record_bytes(), record_bytes(1), b"\0" * 7),
    "a record more": three(*(record_bytes(each) for each in range(4))),
    "a byte behind them": three(*map(record_bytes, range(3)), b"\0"),
    "half a record": three(*map(record_bytes, range(3)))[:-1],
    "damaged bytes": three(b"\xff" * 40),
    "headers without end": three(*map(record_bytes, range(2)), record_bytes(2, headers=b"\xfe\x7f")),
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES.keys())
def test_records_that_are_not_what_the_header_says_are_refused(data: bytes) -> None:
    payload = data[61:]
    for rules in (PLAIN, COMPACTED, BatchRules(create_time=False), BatchRules(before_max_ms=1000)):
        assert refusal(batch_bytes(payload, 3), rules).code is INVALID
        assert refusal(batch_bytes(compress(4, payload), 3, attributes=4), rules).code is INVALID


def test_compressed_bytes_that_are_none_are_refused_for_good() -> None:
    """Their checksum is right, so the client, which sends again upon CORRUPT_MESSAGE, is not asked to."""
    error = refusal(batch_bytes(b"\xff" * 40, 1, attributes=1))
    assert error.code is INVALID and "compressed records are damaged" in error.message


def test_an_offset_that_is_not_the_next_is_named() -> None:
    data = three(record_bytes(), record_bytes(2), record_bytes(1))
    assert record_errors(data, INVALID, PLAIN) == [
        RecordError(1, "offset delta 2, not 1"),
        RecordError(2, "offset delta 1, not 2"),
    ]


def test_records_of_a_compacted_topic_need_keys() -> None:
    data = three(record_bytes(key=None), record_bytes(1, key=b""), record_bytes(2, key=None))
    validated(data)
    errors = record_errors(data, INVALID, COMPACTED)
    assert [each.index for each in errors] == [0, 2]
    assert errors[0].message == "Compacted topic cannot accept message without key."
    validated(three(*map(record_bytes, range(3))), COMPACTED)


def test_unusual_valid_batches_are_accepted() -> None:
    """Client libraries do not write such batches, but nothing in them is invalid."""
    null_of_two = b"\x0c\0\0\0\x03\x03\0"  # key and value have a length of -2
    header = validated(batch_bytes(null_of_two, 1))
    assert header.max_timestamp == NOW_MS
    later = b"\x0c\0\x0a\0\x03\x03\0"
    assert validated(batch_bytes(later + b"\x0c\0\x04\x02\x03\x03\0", 2)).max_timestamp == NOW_MS + 5
    assert record_errors(batch_bytes(null_of_two, 1), INVALID, COMPACTED)[0].index == 0


# -- what they unpack to ---------------------------------------------------------------------------------------------


def test_a_record_of_a_compressed_batch_has_a_cap() -> None:
    """Its key and value count, null as nothing; uncompressed, max.message.bytes alone limits them."""
    records = (record_bytes(key=b"k" * 40, value=b"v" * 60), record_bytes(1, key=None, value=b"v" * 100))
    plain = b"".join((*records, record_bytes(2, key=b"k" * 100, value=None)))
    small, exact = BatchRules(max_record_bytes=99), BatchRules(max_record_bytes=100)
    packed = batch_bytes(compress(4, plain), 3, attributes=4)
    validated(packed, exact)
    errors = record_errors(packed, INVALID, small)
    assert errors == [RecordError(each, "it decompresses to more than 99 bytes") for each in range(3)]
    validated(batch_bytes(plain, 3), small)


def test_a_batch_has_a_cap_of_what_it_decompresses_to() -> None:
    plain = record_bytes(value=b"v" * 5000)
    packed = batch_bytes(compress(4, plain), attributes=4)
    validated(packed, BatchRules(max_decompressed_bytes=len(plain)))
    assert refusal(packed, BatchRules(max_decompressed_bytes=len(plain) - 1)).code is INVALID
    validated(batch_bytes(plain), BatchRules(max_decompressed_bytes=len(plain) - 1))


def test_more_than_a_mebibyte_is_decompressed_off_the_loop() -> None:
    def of(size: int) -> bytes:
        plain = sized(500_000) + sized(size - 500_000, 1)
        return batch_bytes(compress(4, plain), 2, attributes=4)

    validated(of(1_048_576), on_loop=True)
    with pytest.raises(TooLongForLoopError):
        validated(of(1_048_577), on_loop=True)
    validated(of(1_048_577))
    for most in (1_048_576, 1_000_000):
        assert refusal(of(1_048_577), BatchRules(max_decompressed_bytes=most), on_loop=True).code is INVALID
    with pytest.raises(TooLongForLoopError):
        validated(of(1_048_577), BatchRules(max_decompressed_bytes=1_048_577), on_loop=True)


def copied_bytes(size: int, count: int) -> int:
    """The peak memory, in bytes, of validating an uncompressed batch whose records have this mean size."""
    sizes = [size - 100] * (count - 1) + [size + 100 * (count - 1)]
    data = batch_bytes(b"".join(sized(each, at) for at, each in enumerate(sizes)), count)
    tracemalloc.start()
    try:
        validated(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


def test_small_records_are_copied_and_large_ones_looked_at_where_they_lie() -> None:
    assert copied_bytes(4095, 50) >= 50 * 4095
    assert copied_bytes(4096, 50) < 20_000


def test_decompressed_records_are_not_copied() -> None:
    plain = b"".join(record_bytes(each, value=bytes(200)) for each in range(1000))
    data = batch_bytes(compress(4, plain), 1000, attributes=4)
    tracemalloc.start()
    try:
        validated(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * len(plain)


# -- timestamps ------------------------------------------------------------------------------------------------------


def of_times(*deltas: int, base_timestamp: int = NOW_MS, keyless: bool = False, **fields: int) -> bytes:
    records = (record_bytes(at, time=time, key=None if keyless else b"k") for at, time in enumerate(deltas))
    return batch_bytes(b"".join(records), len(deltas), base_timestamp=base_timestamp, **fields)


@pytest.mark.parametrize(
    ("deltas", "largest"), [((0, 0), 0), ((0, 5, 3), 5), ((-7, -3), -3), ((4,), 4), (tuple(range(300)), 299)]
)
def test_the_largest_timestamp_is_what_the_records_say(deltas: tuple[int, ...], largest: int) -> None:
    assert validated(of_times(*deltas, max_timestamp=12345)).max_timestamp == NOW_MS + largest


def test_no_timestamp_is_below_minus_one() -> None:
    assert validated(of_times(0, base_timestamp=-1)).max_timestamp == -1
    assert validated(of_times(0, base_timestamp=-500)).max_timestamp == -1
    assert validated(of_times(0, 502, base_timestamp=-500)).max_timestamp == 2


def test_where_the_log_gives_its_time_the_header_stays() -> None:
    data = of_times(0, 10**10, max_timestamp=12345)
    assert validated(data, BatchRules(create_time=False)).max_timestamp == 12345
    assert validated(data, BatchRules(create_time=False, before_max_ms=0, after_max_ms=0)).max_timestamp == 12345


def test_a_timestamp_may_be_so_far_ahead() -> None:
    validated(of_times(0, HOUR_MS))
    validated(of_times(0, 1000), BatchRules(after_max_ms=1000))
    assert record_errors(of_times(0, HOUR_MS + 1, HOUR_MS, HOUR_MS + 2), TIMESTAMP, PLAIN) == [
        RecordError(at, f"Timestamp {time} is out of range: it must be at most {NOW_MS + HOUR_MS}")
        for at, time in ((1, NOW_MS + HOUR_MS + 1), (3, NOW_MS + HOUR_MS + 2))
    ]


def test_a_timestamp_may_be_so_far_behind() -> None:
    rules = BatchRules(before_max_ms=1000)
    validated(of_times(0, -1000), rules)
    assert record_errors(of_times(-1001, 0, -1000, -2000), TIMESTAMP, rules) == [
        RecordError(0, f"Timestamp {NOW_MS - 1001} is too far in the past"),
        RecordError(3, f"Timestamp {NOW_MS - 2000} is too far in the past"),
    ]
    assert len(record_errors(of_times(-1001, HOUR_MS + 1), TIMESTAMP, rules)) == 2


def test_a_record_without_a_timestamp_is_not_too_old() -> None:
    rules = BatchRules(before_max_ms=1000)
    validated(of_times(0, base_timestamp=-1), rules)
    assert record_errors(of_times(0, base_timestamp=0), TIMESTAMP, rules)[0].index == 0


INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("base", "deltas", "fits"),
    [
        (INT64_MAX, (0,), True),
        (INT64_MAX, (-5, 0), True),
        (INT64_MAX, (0, 1), False),
        (-(2**63), (0,), True),
        (-(2**63), (-1, 0), False),
    ],
)
def test_a_timestamp_has_64_bits(base: int, deltas: tuple[int, ...], fits: bool) -> None:
    rules = BatchRules(create_time=False)
    data = of_times(*deltas, base_timestamp=base)
    if fits:
        validated(data, rules)
    else:
        error = refusal(data, rules)
        assert error.code is INVALID and "64 bits" in error.message


def test_batches_of_the_builder_are_valid() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        data = batch(*(b"%d" % each for each in range(100)), compression=codec, producer_id=4, sequence=0)
        assert validated(data, COMPACTED, on_loop=True) == BatchHeader.read(data)
