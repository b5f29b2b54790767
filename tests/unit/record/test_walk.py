"""The quick walk over a batch accepts only batches that the slow one accepts, and all batches of client libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest

from odradek.common.errors import ApiError
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.record.builder import build_batch
from odradek.record.reader import RecordOutline, outline_records
from odradek.record.record import Record
from odradek.record.walk import walk

START_MS = 1_700_000_000_000


def batch_of(
    count: int,
    *,
    key: Callable[[int], bytes | None] = lambda each: None,
    value: Callable[[int], bytes | None] = lambda each: b"v" * 20,
    headers: Sequence[tuple[str, bytes | None]] = (),
    time: Callable[[int], int] = lambda each: 0,
) -> tuple[bytes, BatchHeader]:
    """The records of a batch, and its header."""
    records = [
        Record(key(each), value(each), tuple(headers), timestamp_ms=START_MS + time(each)) for each in range(count)
    ]
    batch = build_batch(records)
    return bytes(batch[HEADER_BYTES:]), BatchHeader.read(batch)


def slowly(payload: bytes, header: BatchHeader) -> list[RecordOutline] | None:
    """The outlines of records with the right offsets, None where they are wrong."""
    try:
        outlines = outline_records(payload, header)
    except ApiError:
        return None
    return outlines if [each.offset for each in outlines] == list(range(header.record_count)) else None


def times_of(outlines: list[RecordOutline], header: BatchHeader) -> tuple[int, int]:
    deltas = [each.timestamp_ms - header.base_timestamp for each in outlines]
    return min(deltas), max(deltas)


SHAPES = {
    "one": batch_of(1),
    "of one size": batch_of(300),
    "of one size, with keys": batch_of(300, key=lambda each: b"key"),
    "of many sizes": batch_of(300, value=lambda each: bytes(each % 90)),
    "of a size that changes once": batch_of(200, value=lambda each: bytes(40 + each // 100)),
    "with large keys and values": batch_of(40, key=lambda each: bytes(each * 7), value=lambda each: bytes(each * 900)),
    "without values": batch_of(100, key=lambda each: b"k", value=lambda each: None),
    "empty": batch_of(100, value=lambda each: b""),
    "with headers": batch_of(100, headers=[("trace", b"0123"), ("none", None)]),
    "with an empty header": batch_of(100, headers=[("h", b"")]),
    "with an empty name": batch_of(100, headers=[("", b"x")]),
    "with times that grow": batch_of(300, time=lambda each: each * 3),
    "with times that fall": batch_of(300, time=lambda each: -each),
    "with times far apart": batch_of(60, time=lambda each: each * 10_000_000),
    "many": batch_of(16_500, value=lambda each: b""),
    "many of many sizes": batch_of(16_500, value=lambda each: bytes(each % 3)),
}


@pytest.mark.parametrize(("payload", "header"), SHAPES.values(), ids=SHAPES.keys())
def test_batches_of_clients_pass_the_walk(payload: bytes, header: BatchHeader) -> None:
    outlines = slowly(payload, header)
    assert outlines is not None
    for held in (payload, bytearray(payload), memoryview(payload)):
        assert walk(held, header.record_count) == times_of(outlines, header)
    has_keys = all(each.key_bytes >= 0 for each in outlines)
    assert (walk(payload, header.record_count, keyed=True) is not None) == has_keys
    for count in (header.record_count - 1, header.record_count + 1):
        assert walk(payload, count) is None
    assert walk(payload[:-1], header.record_count) is None


@pytest.mark.parametrize("shape", ["of one size", "of many sizes", "with headers", "with an empty header"])
def test_no_byte_can_be_changed_to_something_wrong(shape: str) -> None:
    payload, header = SHAPES[shape]
    count = 70  # across the offset deltas with one byte
    end = header_end(payload, header, count)
    header = header._replace(record_count=count)
    passed = 0
    for position in [*range(60), *range(end - 200, end)]:
        for byte in (payload[position] ^ 1, (payload[position] + 2) & 0xFF, 0, 0xFF):
            changed = payload[:position] + bytes((byte,)) + payload[position + 1 : end]
            found = walk(changed, count)
            if found is not None:
                outlines = slowly(changed, header)
                assert outlines is not None, f"byte {position} is {byte}"
                assert found == times_of(outlines, header)
                passed += 1
    assert passed, "a letter of a value may be any"


def header_end(payload: bytes, header: BatchHeader, count: int) -> int:
    """The position at which the headers of record `count` end."""
    last = outline_records(payload, header)[count - 1]
    position = last.headers_position
    for _ in range(last.header_count):
        name_bytes = payload[position] >> 1
        position += 1 + name_bytes
        position += 1 + max(0, (payload[position] >> 1) ^ -(payload[position] & 1))
    return position


@pytest.mark.parametrize("shape", ["many", "many of many sizes"])
@pytest.mark.parametrize("number", [63, 64, 8191, 8192, 16_384])
def test_an_offset_that_is_not_next_is_found_wherever_it_is(shape: str, number: int) -> None:
    payload, header = SHAPES[shape]
    outlines = slowly(payload, header)
    assert outlines is not None
    at = outlines[number].key_position - 2  # the last byte of the offset delta, before a length of one byte
    for byte in {payload[at] ^ 1, payload[at] ^ 2}:
        changed = payload[:at] + bytes((byte,)) + payload[at + 1 :]
        assert walk(changed, header.record_count) is None


def test_the_shape_of_a_run_is_of_one_record_alone() -> None:
    """A record with the size of its neighbours and other parts is not one of them."""
    payload, header = batch_of(
        120, key=lambda each: bytes(5 + (each == 60)), value=lambda each: bytes(9 - (each == 60))
    )
    outlines = slowly(payload, header)
    assert outlines is not None
    assert walk(payload, 120) == times_of(outlines, header)
    assert walk(payload, 120, keyed=True) == times_of(outlines, header)


def test_a_wide_time_ends_a_run_though_others_follow_that_are_alike() -> None:
    """Records of one size, the later ones with larger keys; one of the earlier ones has a time of two bytes."""
    payload, header = batch_of(
        300, key=lambda each: bytes(5 + (each >= 100)), value=lambda each: bytes(9 - (each >= 100))
    )
    outlines = slowly(payload, header)
    assert outlines is not None and walk(payload, 300) == times_of(outlines, header)
    for number in (70, 90, 99):
        at = outlines[number].key_position - 4  # before an offset delta of two bytes and a length of one
        changed = payload[:at] + b"\x80" + payload[at + 1 :]
        assert slowly(changed, header) is None
        assert walk(changed, 300) is None


# Calls of functions that a look at a shape takes, counted: a record that leaves the loop for what is plain takes six or
# more, one with headers two for each, and one that is compared in columns none.
CALLS = {
    "of one size": 64,
    "of one size, with keys": 64,
    "of many sizes": 48,
    "of a size that changes once": 95,
    "with large keys and values": 282,
    "without values": 64,
    "empty": 64,
    "with headers": 651,
    "with times that grow": 98,
    "with times that fall": 75,
    "many": 128,
    "many of many sizes": 201,
}


def calls_of(payload: bytes, count: int) -> int:
    """The number of Python functions that a walk calls."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        # Functions that the garbage collector calls meanwhile belong to other modules.
        calls += event == "call" and frame.f_globals["__name__"].startswith("odradek.record.")

    sys.setprofile(note)
    try:
        walk(payload, count)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(("shape", "most"), CALLS.items())
def test_validation_makes_no_call_per_record(shape: str, most: int) -> None:
    payload, header = SHAPES[shape]
    assert calls_of(payload, header.record_count) <= most
