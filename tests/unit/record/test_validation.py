"""Produce refuses batches by their headers: each refusal, with its code and the text that clients see."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import BatchHeader
from odradek.record.compression import compress
from odradek.record.control import transaction_marker
from odradek.record.validation import BatchRules, InvalidRecordsError, admit, is_long_walk, validate_produced
from tests.support.models.batches import NOW_MS, batch
from tests.support.models.hand_made import batch_bytes, record_bytes

INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
PLAIN = BatchRules()
TRUSTING = BatchRules(trusted=True)
GOOD = batch(b"a", b"b", b"c")
TWO = record_bytes() + record_bytes(1)
# A record of seven bytes, the fewest that there are.
SMALLEST = record_bytes(key=None, value=None)


def refusal(data: bytes, rules: BatchRules = PLAIN, *, api_version: int = 13, from_client: bool = True) -> ApiError:
    with pytest.raises(ApiError) as error:
        validate_produced(data, rules, now_ms=NOW_MS, api_version=api_version, from_client=from_client)
    return error.value


def taken(data: bytes, rules: BatchRules = PLAIN, *, api_version: int = 13, from_client: bool = True) -> BatchHeader:
    header = validate_produced(data, rules, now_ms=NOW_MS, api_version=api_version, from_client=from_client)
    assert header == BatchHeader.read(data)
    return header


def of_format(magic: int, size: int = 100) -> bytes:
    """A message set of an older format, or of none."""
    return (bytes(16) + bytes((magic,)) + bytes(100))[:size]


# -- one whole batch -------------------------------------------------------------------------------------------------

# Refused whatever the records are.
NO_BATCH = {
    "nothing": (b"", INVALID, "of 0 bytes is shorter than its header"),
    "less than a magic": (of_format(1, 16), INVALID, "of 16 bytes is shorter"),
    "less than a header": (GOOD[:60], INVALID, "of 60 bytes is shorter"),
    "a small message of v0": (of_format(0, 17), INVALID, "format v0 are no longer taken"),
    "a small message of v1": (of_format(1, 17), INVALID, "format v1 are no longer taken"),
    "messages of v1": (of_format(1), INVALID, "format v1 are no longer taken"),
    "another magic": (of_format(3), CORRUPT, "Invalid magic found in record: 3"),
    "a small batch of another magic": (of_format(3, 20), CORRUPT, "Invalid magic found in record: 3"),
    "a length below that of a header": (batch_bytes(TWO, 2, batch_length=48), CORRUPT, "says that it has 60 bytes"),
    "more than came": (GOOD[:-1], INVALID, f"says that it has {len(GOOD)} bytes, {len(GOOD) - 1} came"),
    "two batches": (GOOD + GOOD, INVALID, "exactly one record batch"),
    "a byte behind it": (GOOD + b"\0", INVALID, "exactly one record batch"),
    "a byte of it damaged": (GOOD[:-1] + b"\xff", CORRUPT, "Record is corrupt"),
}


@pytest.mark.parametrize(("data", "code", "text"), NO_BATCH.values(), ids=NO_BATCH.keys())
def test_bytes_that_are_not_one_whole_batch_are_refused(data: bytes, code: ErrorCode, text: str) -> None:
    for rules in (PLAIN, TRUSTING):
        error = refusal(data, rules)
        assert error.code is code and text in error.message


def test_a_batch_is_as_large_as_the_topic_allows() -> None:
    taken(GOOD, BatchRules(max_message_bytes=len(GOOD)))
    error = refusal(GOOD, BatchRules(max_message_bytes=len(GOOD) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert f"is {len(GOOD)} bytes which exceeds the maximum configured value of {len(GOOD) - 1}." in error.message


def test_the_settings_are_kafkas_where_nothing_is_set() -> None:
    assert BatchRules(1_048_588, False, True, 2**63 - 1, 3_600_000, 64 << 20, 2**31 - 1, False) == PLAIN


# -- what a header says ----------------------------------------------------------------------------------------------

WRONG_HEADERS = {
    "no record": (batch_bytes(b"", 0), INVALID, "Invalid reported count for record batch: 0"),
    "less than none": (batch_bytes(TWO, -1), INVALID, "Invalid reported count"),
    "fewer offsets than records": (
        batch_bytes(TWO, 2, last_offset_delta=0),
        INVALID,
        "Inconsistent batch offset range",
    ),
    "more offsets than records": (batch_bytes(TWO, 2, last_offset_delta=2), INVALID, "[0, 2] and count of records 2"),
    "an offset of its own": (batch_bytes(TWO, 2, base_offset=1), INVALID, "must be 0, but it is 1"),
    "more records than bytes": (batch_bytes(SMALLEST + b"\0" * 6, 2), INVALID, "2 records do not fit into 74 bytes"),
    "a codec that does not exist": (batch_bytes(TWO, 2, attributes=5), UNSUPPORTED, "no codec has number 5"),
    "a control batch": (batch_bytes(TWO, 2, attributes=0x20), INVALID, "not allowed to write control records"),
    "a delete horizon": (batch_bytes(TWO, 2, attributes=0x40), INVALID, "not allowed to set the delete horizon"),
    "the log's time": (batch_bytes(TWO, 2, attributes=8), ErrorCode.INVALID_TIMESTAMP, "it must be CreateTime"),
    "a producer without a sequence": (
        batch_bytes(TWO, 2, producer_id=0, producer_epoch=0, base_sequence=-1),
        INVALID,
        "Invalid sequence number -1 or epoch 0 in record batch with producer id 0",
    ),
    "a producer without an epoch": (
        batch_bytes(TWO, 2, producer_id=0, producer_epoch=-1, base_sequence=0),
        INVALID,
        "Invalid sequence number 0 or epoch -1",
    ),
    "a transaction without a producer": (batch_bytes(TWO, 2, attributes=0x10), INVALID, "needs a producer id"),
}


@pytest.mark.parametrize(("data", "code", "text"), WRONG_HEADERS.values(), ids=WRONG_HEADERS.keys())
def test_a_header_that_is_wrong_is_refused_from_trusted_producers_too(data: bytes, code: ErrorCode, text: str) -> None:
    for rules in (PLAIN, TRUSTING):
        error = refusal(data, rules)
        assert error.code is code and text in error.message


RIGHT_HEADERS = {
    "the smallest records": batch_bytes(SMALLEST + record_bytes(1, key=None, value=None), 2),
    "an idempotent producer": batch_bytes(TWO, 2, producer_id=0, producer_epoch=0, base_sequence=0),
    "a transaction": batch_bytes(TWO, 2, attributes=0x10, producer_id=7, producer_epoch=1, base_sequence=5),
    "an epoch without a producer": batch_bytes(TWO, 2, producer_epoch=3, base_sequence=4),
    "another leader's epoch": batch_bytes(TWO, 2, partition_leader_epoch=3),
    "many records in few bytes": batch(*[b""] * 500, compression="zstd"),
}


@pytest.mark.parametrize("data", RIGHT_HEADERS.values(), ids=RIGHT_HEADERS.keys())
def test_a_header_that_is_right_is_taken(data: bytes) -> None:
    for rules in (PLAIN, TRUSTING):
        taken(data, rules)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_zstd_is_for_clients_that_read_it(codec: str) -> None:
    data = batch(b"a" * 100, compression=codec)
    taken(data, api_version=7)
    if codec == "zstd":
        error = refusal(data, api_version=6)
        assert error.code is UNSUPPORTED and "KIP-110" in error.message
    else:
        taken(data, api_version=6)


def test_the_broker_itself_writes_what_clients_may_not() -> None:
    marker = transaction_marker(commit=True, producer_id=9, producer_epoch=4, coordinator_epoch=6, timestamp_ms=NOW_MS)
    taken(marker, from_client=False)
    assert "control records" in refusal(marker).message
    taken(batch_bytes(TWO, 2, base_offset=70), from_client=False)
    taken(batch_bytes(b"no record at all", 2), BatchRules(compacted=True), from_client=False)


# -- producers that are trusted --------------------------------------------------------------------------------------


def test_the_records_of_trusted_producers_are_left_alone() -> None:
    lie = batch_bytes(b"no record at all", 2, max_timestamp=5)
    taken(lie, TRUSTING)
    assert refusal(lie).code is INVALID


@pytest.mark.parametrize(
    ("rules", "must"),
    [
        (BatchRules(), False),
        (BatchRules(compacted=True), True),
        (BatchRules(before_max_ms=1000), True),
        (BatchRules(create_time=False, before_max_ms=1000), False),
        (BatchRules(create_time=False, before_max_ms=1000, compacted=True), True),
        (BatchRules(after_max_ms=1000), False),
    ],
)
def test_settings_of_single_records_are_asked_of_trusted_ones_too(rules: BatchRules, must: bool) -> None:
    assert rules.must_see_records is must
    trusting = BatchRules(
        rules.max_message_bytes, rules.compacted, rules.create_time, rules.before_max_ms, trusted=True
    )
    lie = batch_bytes(b"no record at all", 2)
    if must:
        assert refusal(lie, trusting).code is INVALID
    else:
        taken(lie, trusting)


def test_the_largest_timestamp_of_a_header_has_a_limit() -> None:
    latest = NOW_MS + 3_600_000
    for max_timestamp in (-1, latest):
        taken(batch_bytes(TWO, 2, max_timestamp=max_timestamp), TRUSTING)
    late = batch_bytes(TWO, 2, max_timestamp=latest + 1)
    error = refusal(late, TRUSTING)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordsError) and error.record_errors == []
    assert error.message == f"Timestamp {latest + 1} is out of range: it must be at most {latest}"
    taken(late, BatchRules(trusted=True, create_time=False))
    assert refusal(late, from_client=False).code is ErrorCode.INVALID_TIMESTAMP


# -- what is too long for the loop -----------------------------------------------------------------------------------


def of_size(size: int, count: int, attributes: int = 0) -> bytes:
    return batch_bytes(bytes(size - 61), count, attributes=attributes)


@pytest.mark.parametrize(
    ("data", "is_long"),
    [
        (b"", False),
        (GOOD, False),
        (of_size(14_001, 2001), True),
        (of_size(14_001, 2000), False),
        (of_size(14_000, 2001), False),
        (of_size(262_145, 1), False),
        (of_size(262_145, 1, attributes=1), True),
        (of_size(262_144, 1, attributes=1), False),
        (of_size(262_144, 2001, attributes=1), True),
        (of_format(1) + bytes(300_000), False),
    ],
)
def test_many_records_and_much_to_decompress_are_for_a_thread(data: bytes, is_long: bool) -> None:
    assert is_long_walk(data, PLAIN) is is_long
    assert is_long_walk(data, TRUSTING) is False
    assert is_long_walk(data, BatchRules(trusted=True, compacted=True)) is is_long


# -- what enters the log ---------------------------------------------------------------------------------------------


def test_valid_batches_are_appended_unchanged() -> None:
    data, header = admit(GOOD, PLAIN, now_ms=NOW_MS, api_version=9)
    assert data is GOOD and header == BatchHeader.read(GOOD)


@pytest.mark.parametrize("claimed", [-1, NOW_MS - 1, NOW_MS + 1])
def test_a_wrong_largest_timestamp_is_corrected(claimed: int) -> None:
    wrong = batch_bytes(TWO, 2, max_timestamp=claimed)
    data, header = admit(wrong, PLAIN, now_ms=NOW_MS, api_version=9)
    assert bytes(data) == batch_bytes(TWO, 2, max_timestamp=NOW_MS)
    assert header == BatchHeader.read(data)


def test_refused_batches_are_not_appended() -> None:
    with pytest.raises(ApiError) as error:
        admit(batch_bytes(compress(4, TWO), 2, attributes=4), PLAIN, now_ms=NOW_MS, api_version=6)
    assert error.value.code is UNSUPPORTED
