"""Decoding any bytes gives a message or raises ProtocolError, and allocates no more than the bytes warrant."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from odradek.common.errors import ProtocolError
from odradek.protocol.codec import decode, decode_prefix, encode
from odradek.protocol.declare import Message
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.request_header import RequestHeader
from tests.protocol.values import all_messages, sample

# a count of 2**31 - 1 as int32, 2**32 - 1 and 2**31 as varints, the longest and an overlong varint, -1 and -2**31
HUGE = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
)


def samples(cls: type[Message]) -> Iterator[tuple[int, bytes]]:
    """(version, bytes) of a sample of every version; the newest one, which has all fields, with random values, too."""
    for version in cls.VERSIONS.versions():
        yield version, encode(sample(cls, version, "plain"), version)
    yield version, encode(sample(cls, version, "random"), version)


def attempt(cls: type[Message], data: bytes, version: int) -> bool:
    """Whether it decodes; anything but ProtocolError fails the test."""
    try:
        decode(cls, data, version)
    except ProtocolError:
        return False
    return True


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_a_message_cut_at_any_byte_is_refused(cls: type[Message]) -> None:
    for version, data in samples(cls):
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                decode_prefix(cls, data[:end], version)
        assert not attempt(cls, data + b"\0", version), "a byte too many"


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_one_wrong_byte_is_refused_or_decoded(cls: type[Message]) -> None:
    rng = Random(cls.__name__)
    for version, data in samples(cls):
        for at in range(len(data)):
            for byte in (data[at] ^ 0x01, data[at] ^ 0x80, 0x7F, 0xFF, rng.randrange(256)):
                attempt(cls, data[:at] + bytes((byte,)) + data[at + 1 :], version)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_a_huge_length_anywhere_allocates_nothing(cls: type[Message]) -> None:
    version = cls.VERSIONS.last
    data = encode(sample(cls, version, "plain"), version)
    # tracemalloc looks for the line of each allocation, which takes long in the long functions of long messages
    places = range(0, len(data), 1 + len(data) ** 2 // 10_000)
    hostile = [data[:at] + huge + data[at + len(huge) :] for at in places for huge in HUGE]
    attempt(cls, data, version)
    tracemalloc.start()
    try:
        for each in hostile:
            attempt(cls, each, version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 256 * 1024


def test_random_bytes_raise_nothing_else() -> None:
    rng = Random(1)
    classes = all_messages()
    for _ in range(20_000):
        cls = rng.choice(classes)
        version = rng.randint(cls.VERSIONS.first, cls.VERSIONS.last)
        attempt(cls, rng.randbytes(rng.randint(0, 60)), version)


def test_the_length_that_kills_a_native_reader_is_refused() -> None:
    with pytest.raises(ProtocolError, match="2147483647 elements"):
        decode(MetadataRequest, b"\x7f\xff\xff\xff", 1)


def test_an_array_of_more_than_a_million_elements_is_refused() -> None:
    def groups(count: int) -> bytes:
        raw = bytearray()
        value = count + 1
        while value > 0x7F:
            raw.append(value & 0x7F | 0x80)
            value >>= 7
        raw.append(value)
        return bytes(raw) + b"\x01" * count + b"\0\0"

    assert len(decode(DescribeGroupsRequest, groups(1_000_000), 5).groups) == 1_000_000
    with pytest.raises(ProtocolError, match="1000001 elements"):
        decode(DescribeGroupsRequest, groups(1_000_001), 5)


def test_a_varint_longer_than_five_bytes_or_than_32_bits_is_refused() -> None:
    for raw in (b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x1f"):
        with pytest.raises(ProtocolError, match="32 bits"):
            decode(DescribeGroupsRequest, raw + b"\0\0", 5)


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode(DescribeGroupsRequest, b"\x02\x02\xff\x00\x00", 5)


def test_a_tag_twice_or_of_a_wrong_size_is_refused() -> None:
    head = b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff"
    header, end = decode_prefix(RequestHeader, head + b"\x02\x05\x01a\x06\x01b" + b"body", 2)
    assert header.unknown_tagged_fields == [(5, b"a"), (6, b"b")]
    assert end == len(head) + 7
    for tags in (b"\x02\x05\x01a\x05\x01b", b"\x01\x05\x02a", b"\x7f\x05\x00", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(ProtocolError):
            decode_prefix(RequestHeader, head + tags, 2)
