"""Batches of hostile producers: some decompress to gigabytes, and some do not match their header.

Each has a valid checksum, as a hostile or faulty client can send it. A canary sends small requests meanwhile; its limit
is no measure of speed, and the peak memory of the node is the kernel's own number.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.record.batch import COMPRESSION_NAMES, HEADER_BYTES, BatchHeader, pack_header, seal
from odradek.record.builder import build_batch
from odradek.record.compression import compress
from odradek.record.reader import read_batches
from odradek.record.record import Record
from odradek.record.varint import zigzag
from tests.support.clients.api_calls import Calls, bytes_of, one, produce_request
from tests.support.clients.canary import Canary
from tests.support.clients.confluent import read_all
from tests.support.nodes.node import Node

# The longest wait, in the node's own processor seconds, however busy the machine is.
LONGEST_WAIT_S = 1.0
CODECS = range(len(COMPRESSION_NAMES))
SNAPPY, ZSTD = 2, 4
RECORDS = 3000
NOW_MS = time.time_ns() // 1_000_000
# A frame of zstd whose blocks are one byte each, to be repeated: 131,072 times.
ZSTD_START = struct.pack("<I", 0xFD2FB528) + bytes((0, 13 << 3))
ZSTD_BLOCK_BYTES = 131_072


def zstd_of(size: int, byte: bytes = b"\0") -> bytes:
    """A frame of four bytes for each block."""
    count = size // ZSTD_BLOCK_BYTES
    blocks = [
        struct.pack("<I", ZSTD_BLOCK_BYTES << 3 | 1 << 1 | (each == count - 1))[:3] + byte for each in range(count)
    ]
    return ZSTD_START + b"".join(blocks)


def sealed(payload: bytes, count: int, codec: int = 0, *, max_timestamp: int = NOW_MS) -> bytes:
    """A batch with these bytes, which need not be records, and a valid checksum."""
    template = BatchHeader.read(build_batch([Record(b"k", b"v", timestamp_ms=NOW_MS)]))
    header = template._replace(
        attributes=codec,
        batch_length=HEADER_BYTES - 12 + len(payload),
        record_count=count,
        last_offset_delta=count - 1,
        max_timestamp=max_timestamp,
    )
    batch = bytearray(pack_header(header) + payload)
    seal(batch)
    return bytes(batch)


def record(delta: int, *, value: bytes = b"v" * 30, time_delta: int = 0, tail: bytes = b"\0") -> bytes:
    body = b"\0" + zigzag(time_delta) + zigzag(delta) + zigzag(1) + b"k" + zigzag(len(value)) + value + tail
    return zigzag(len(body)) + body


def records(count: int = RECORDS, changed: Callable[[int], bytes] = record) -> bytes:
    """The bytes of valid records, with a changed one in the middle."""
    middle = count // 2
    return b"".join(changed(each) if each == middle else record(each) for each in range(count))


def send(calls: Calls, topic: str, batch: bytes) -> ErrorCode:
    return ErrorCode(calls.produce(topic, batch, timeout_ms=60_000).error_code)


def peak_bytes(node: Node) -> int:
    """The most memory that the process had since `reset_peak`."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def reset_peak(node: Node) -> None:
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


# -- what decompresses to too much -----------------------------------------------------------------------------------

TOPICS: dict[str, dict[str, Any]] = {
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "gzip"},
    "plain": {},
}


@pytest.mark.parametrize("configs", TOPICS.values(), ids=TOPICS.keys())
def test_a_quarter_of_a_megabyte_that_holds_eight_gigabytes(node: Node, configs: dict[str, Any]) -> None:
    bomb = sealed(zstd_of(8 << 30), 1000, ZSTD)
    assert len(bomb) < 300_000
    with Calls(node.port) as calls:
        topics = [calls.create_topic(**configs) for _ in range(6)]
        before = node.memory_bytes()
        reset_peak(node)
        with Canary(node.port, node.cpu_s) as canary:
            wires = [Calls(node.port) for _ in topics]
            sent = [
                each.send(ApiKey.PRODUCE, 9, produce_request(topic, bomb, timeout_ms=60_000))
                for each, topic in zip(wires, topics, strict=True)
            ]
            for each, number in zip(wires, sent, strict=True):
                answer = each.receive(ApiKey.PRODUCE, 9, number)
                assert one(one(answer.responses).partition_responses).error_code == ErrorCode.INVALID_RECORD
                each.close()
    assert canary.longest_wait_s < LONGEST_WAIT_S
    assert peak_bytes(node) - before < 350 * 2**20
    assert node.memory_bytes() - before < 100 * 2**20, "it is kept"


def test_a_large_batch_that_is_no_bomb_is_accepted(node: Node) -> None:
    """Forty megabytes of one letter compress to kilobytes; so may a log."""
    batch = build_batch([Record(b"k", b"x" * (40 << 20), timestamp_ms=NOW_MS)], compression="zstd")
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, batch) == ErrorCode.NONE
    (message,) = read_all(node.bootstrap, topic)
    assert len(message.value() or b"") == 40 << 20


def test_an_uncompressed_topic_takes_no_more_than_a_batch_may_have(node: Node) -> None:
    batch = build_batch([Record(b"k", b"x" * (4 << 20), timestamp_ms=NOW_MS)], compression="zstd")
    with Calls(node.port) as calls:
        topic = calls.create_topic(compression_type="uncompressed")
        assert send(calls, topic, batch) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("start", [b"", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 46)], ids=["raw", "framed"])
def test_a_snappy_header_that_claims_four_gigabytes(node: Node, start: bytes) -> None:
    payload = start + b"\xff\xff\xff\xff\x0f" + bytes(41)
    with Calls(node.port) as calls, Canary(node.port, node.cpu_s) as canary:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(payload, 1, SNAPPY)) == ErrorCode.INVALID_RECORD
        assert calls.list_end(topic) == 0
    assert canary.longest_wait_s < LONGEST_WAIT_S


# -- what is not what it says ----------------------------------------------------------------------------------------

LIES = {
    "one record less": records()[: -len(record(RECORDS - 1))],
    "one record more": records() + record(RECORDS),
    "an offset twice": records(changed=lambda each: record(each - 1)),
    "a value that is longer than its record": records(changed=lambda each: record(each).replace(b"\x3cvv", b"\x3evv")),
    "headers that are not there": records(changed=lambda each: record(each, tail=b"\x04")),
    "a record of no bytes": records(changed=lambda each: b"\0"),
    "a record that never ends": records(changed=lambda each: b"\xff" * 40),
}


@pytest.mark.parametrize("codec", CODECS, ids=COMPRESSION_NAMES)
@pytest.mark.parametrize("payload", LIES.values(), ids=LIES.keys())
def test_a_batch_that_is_not_what_it_says_is_refused(node: Node, payload: bytes, codec: int) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(compress(codec, payload), RECORDS, codec)) == ErrorCode.INVALID_RECORD
        assert calls.list_end(topic) == 0


@pytest.mark.parametrize("codec", CODECS, ids=COMPRESSION_NAMES)
def test_a_batch_that_is_what_it_says_is_taken(node: Node, codec: int) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(compress(codec, records()), RECORDS, codec)) == ErrorCode.NONE
    assert [message.offset() for message in read_all(node.bootstrap, topic)] == list(range(RECORDS))


def test_others_are_served_while_many_small_records_are_looked_at(node: Node) -> None:
    payload = b"".join(record(each, value=bytes(each % 3)) for each in range(80_000))
    with Calls(node.port) as calls, Canary(node.port, node.cpu_s) as canary:
        topic = calls.create_topic(max_message_bytes=8_000_000)
        for _ in range(5):
            assert send(calls, topic, sealed(payload, 80_000)) == ErrorCode.NONE
    assert canary.longest_wait_s < LONGEST_WAIT_S
    assert canary.answers


# -- timestamps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=COMPRESSION_NAMES)
@pytest.mark.parametrize("claimed", [NOW_MS + 86_400_000, 0, NOW_MS + 7], ids=["later", "never", "a little later"])
def test_a_wrong_largest_timestamp_is_corrected(node: Node, codec: int, claimed: int) -> None:
    payload = compress(codec, record(0) + record(1, time_delta=5) + record(2, time_delta=2))
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(payload, 3, codec, max_timestamp=claimed)) == ErrorCode.NONE
        assert calls.list_end(topic, timestamp=NOW_MS + 3) == 1
        assert calls.list_end(topic, timestamp=NOW_MS + 6) == -1
        data = bytes_of(calls.read(topic).records)
    ((_, header),) = read_batches(data)
    assert header.max_timestamp == NOW_MS + 5
    assert len(read_all(node.bootstrap, topic)) == 3, "its checksum is right"


@pytest.mark.parametrize("codec", CODECS, ids=COMPRESSION_NAMES)
def test_a_timestamp_that_the_header_hides_is_refused(node: Node, codec: int) -> None:
    payload = compress(codec, record(0) + record(1, time_delta=86_400_000))
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(payload, 2, codec)) == ErrorCode.INVALID_TIMESTAMP


# -- producers that are trusted --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    settings: dict[str, object] = {"odradek.trust.producers": "true"}
    with Node(tmp_path_factory.mktemp("trusting"), settings) as node:
        yield node


def test_a_bomb_of_a_trusted_producer_is_not_searched_for_a_time(trusting: Node) -> None:
    with Calls(trusting.port) as calls:
        topic = calls.create_topic()
        assert send(calls, topic, sealed(zstd_of(8 << 30), 1000, ZSTD)) == ErrorCode.NONE
        before = trusting.memory_bytes()
        reset_peak(trusting)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        answer = one(one(calls.request(ApiKey.LIST_OFFSETS, 7, request).topics).partitions)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert peak_bytes(trusting) - before < 350 * 2**20


def test_a_node_that_trusts_its_producers_looks_at_headers_alone(trusting: Node) -> None:
    lie = sealed(LIES["an offset twice"], RECORDS)
    with Calls(trusting.port) as calls:
        assert send(calls, calls.create_topic(), lie) == ErrorCode.NONE
        compacted = calls.create_topic(**TOPICS["compacted"])
        assert send(calls, compacted, lie) == ErrorCode.INVALID_RECORD, "a topic that needs each record"
