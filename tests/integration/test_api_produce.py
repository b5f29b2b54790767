"""Produce: which batches the log accepts, why others are refused, acknowledgements, and idempotent producers.

The expected error of each malformed batch is that of Apache Kafka; where Kafka answers UNKNOWN_SERVER_ERROR or repairs
the batch in silence, the case is marked as ours alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.record.batch import HEADER_BYTES, seal
from odradek.record.reader import read_batches, read_records
from tests.support.clients.api_calls import (
    Calls,
    batch,
    bytes_of,
    fresh_name,
    name_of,
    one,
    produce_request,
    values_in,
    with_field,
)
from tests.support.nodes.node import Node

# Positions of fields in a batch.
BASE_OFFSET, LENGTH, EPOCH, MAGIC_BYTE, CRC, ATTRIBUTES, LAST_DELTA = 0, 8, 12, 16, 17, 21, 23
MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 35, 43, 51, 53, 57
HOUR_MS = 3_600_000
only_ours = pytest.mark.only_ours


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def with_byte(data: bytes, position: int, value: int) -> bytes:
    """The batch with one byte of its records changed, sealed again."""
    changed = bytearray(data)
    changed[position] = value
    seal(changed)
    return bytes(changed)


THREE = batch(b"one", b"two", b"three")
SQUEEZED = {codec: batch(*[b"again" * 20] * 3, compression=codec) for codec in ("gzip", "snappy", "lz4", "zstd")}


def with_count(data: bytes, count: int) -> bytes:
    """The batch with another number of records, and the last offset to fit."""
    return with_field(with_field(data, ">i", COUNT, count), ">i", LAST_DELTA, count - 1)


LIES = {
    # The frame of the batch.
    "no bytes": (b"", "INVALID_RECORD"),
    "ten bytes": (THREE[:10], "INVALID_RECORD"),
    "a byte less than a header": (THREE[: HEADER_BYTES - 1], "INVALID_RECORD"),
    "cut at the end": (THREE[:-1], "INVALID_RECORD"),
    "two batches": (THREE + THREE, "INVALID_RECORD"),
    "a length of one too many": (with_field(THREE, ">i", LENGTH, len(THREE) - 11, sealed=False), "INVALID_RECORD"),
    "a length of nothing": (with_field(THREE, ">i", LENGTH, 0, sealed=False), "CORRUPT_MESSAGE"),
    "a negative length": (with_field(THREE, ">i", LENGTH, -5, sealed=False), "CORRUPT_MESSAGE"),
    "format 0": (with_field(THREE, ">b", MAGIC_BYTE, 0, sealed=False), "INVALID_RECORD"),
    "format 1": (with_field(THREE, ">b", MAGIC_BYTE, 1, sealed=False), "INVALID_RECORD"),
    "format 3": (with_field(THREE, ">b", MAGIC_BYTE, 3, sealed=False), "CORRUPT_MESSAGE"),
    "format -1": (with_field(THREE, ">b", MAGIC_BYTE, -1, sealed=False), "CORRUPT_MESSAGE"),
    "another checksum": (with_field(THREE, ">I", CRC, 12345, sealed=False), "CORRUPT_MESSAGE"),
    "a changed byte": (THREE[:-2] + b"!" + THREE[-1:], "CORRUPT_MESSAGE"),
    # Counts and offsets.
    "base offset 5": (with_field(THREE, ">q", BASE_OFFSET, 5), "INVALID_RECORD"),
    "base offset -1": (with_field(THREE, ">q", BASE_OFFSET, -1), "INVALID_RECORD"),
    "a count below the offsets": (with_field(THREE, ">i", COUNT, 2), "INVALID_RECORD"),
    "a count above the offsets": (with_field(THREE, ">i", COUNT, 4), "INVALID_RECORD"),
    "a count of 0": (with_field(THREE, ">i", COUNT, 0), "INVALID_RECORD"),
    "a count of -1": (with_field(THREE, ">i", COUNT, -1), "INVALID_RECORD"),
    "a last offset of -1": (with_field(THREE, ">i", LAST_DELTA, -1), "INVALID_RECORD"),
    "fewer records than are there": (with_count(THREE, 2), "INVALID_RECORD"),
    "more records than are there": (with_count(THREE, 10), "INVALID_RECORD"),
    "the largest count": (with_count(THREE, 2**31 - 1), "INVALID_RECORD"),
    **{f"{codec}, fewer records": (with_count(SQUEEZED[codec], 2), "INVALID_RECORD") for codec in SQUEEZED},
    **{f"{codec}, more records": (with_count(SQUEEZED[codec], 4), "INVALID_RECORD") for codec in SQUEEZED},
    # Attributes and the producer's fields.
    "a control batch": (batch(b"x", control=True, producer_id=4, producer_epoch=0, sequence=0), "INVALID_RECORD"),
    "a control batch of a client": (with_field(THREE, ">h", ATTRIBUTES, 0x20), "INVALID_RECORD"),
    "a producer without sequence": (
        with_field(with_field(THREE, ">q", PRODUCER_ID, 5), ">h", PRODUCER_EPOCH, 0),
        "INVALID_RECORD",
    ),
    # The records.
    "a record longer than the batch": (with_byte(THREE, HEADER_BYTES, 0x7E), "INVALID_RECORD"),
    "a record of negative length": (with_byte(THREE, HEADER_BYTES, 0x01), "INVALID_RECORD"),
    "a key longer than its record": (with_byte(THREE, HEADER_BYTES + 4, 0x7E), "INVALID_RECORD"),
}
# Kafka answers UNKNOWN_SERVER_ERROR to the codecs, and corrects or overlooks the rest.
LIES_THAT_ARE_OURS = {
    "no records at all": (None, "INVALID_RECORD"),
    "the largest length": (with_field(THREE, ">i", LENGTH, 2**31 - 1, sealed=False), "INVALID_RECORD"),
    "a byte behind the batch": (THREE + b"\0", "INVALID_RECORD"),
    "codec 5": (with_field(THREE, ">h", ATTRIBUTES, 5), "UNSUPPORTED_COMPRESSION_TYPE"),
    "codec 7": (with_field(THREE, ">h", ATTRIBUTES, 7), "UNSUPPORTED_COMPRESSION_TYPE"),
    "a codec that was not used": (with_field(THREE, ">h", ATTRIBUTES, 1), "INVALID_RECORD"),
    **{
        f"{codec}, damaged": (with_byte(data, HEADER_BYTES, data[HEADER_BYTES] ^ 0xFF), "INVALID_RECORD")
        for codec, data in SQUEEZED.items()
    },
    "a transactional batch without a producer": (with_field(THREE, ">h", ATTRIBUTES, 0x10), "INVALID_RECORD"),
    "a delete horizon": (with_field(THREE, ">h", ATTRIBUTES, 0x40), "INVALID_RECORD"),
    "a timestamp of the broker's": (with_field(THREE, ">h", ATTRIBUTES, 0x08), "INVALID_TIMESTAMP"),
    "a producer without epoch": (
        with_field(with_field(THREE, ">q", PRODUCER_ID, 5), ">i", SEQUENCE, 0),
        "INVALID_RECORD",
    ),
    "an offset out of step": (with_byte(THREE, HEADER_BYTES + 3, 0x02), "INVALID_RECORD"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_inconsistent_batch_is_refused(calls: Calls, topic: str, lie: str) -> None:
    data, expected = LIES[lie]
    _refused_and_the_next_one_taken(calls, topic, data, expected)


@only_ours
@pytest.mark.parametrize("lie", LIES_THAT_ARE_OURS)
def test_an_inconsistent_batch_is_refused_where_kafka_is_lenient(calls: Calls, topic: str, lie: str) -> None:
    data, expected = LIES_THAT_ARE_OURS[lie]
    _refused_and_the_next_one_taken(calls, topic, data, expected)


@pytest.fixture(scope="module")
def topic(node: Node) -> str:
    with Calls(node.port) as connection:
        return connection.create_topic()


def _refused_and_the_next_one_taken(calls: Calls, topic: str, data: Any, expected: str) -> None:
    end = calls.list_end(topic)
    answer = calls.produce(topic, data)
    assert name_of(answer.error_code) == expected, answer.error_message
    assert answer.base_offset == -1
    assert calls.list_end(topic) == end, "nothing of it may be in the log"
    assert calls.produce(topic, batch(b"next")).base_offset == end


@pytest.mark.parametrize("codec", SQUEEZED)
def test_every_codec_is_kept_as_it_came(calls: Calls, codec: str) -> None:
    topic = calls.create_topic()
    assert not calls.produce(topic, SQUEEZED[codec]).error_code
    stored = bytes_of(calls.read(topic).records)
    # All but base offset and leader epoch, which are the log's to give and outside of the checksum.
    assert stored[MAGIC_BYTE:] == SQUEEZED[codec][MAGIC_BYTE:]
    assert values_in(stored) == [b"again" * 20] * 3


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_needs_a_client_that_knows_it(calls: Calls, topic: str, version: int) -> None:
    assert name_of(calls.produce(topic, SQUEEZED["zstd"], version=version).error_code) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert not calls.produce(topic, SQUEEZED["zstd"], version=7).error_code


@pytest.mark.parametrize("version", range(3, 13))
def test_the_error_code_is_reported_in_every_version(calls: Calls, topic: str, version: int) -> None:
    answer = calls.produce(topic, with_field(THREE, ">I", CRC, 1, sealed=False), version=version)
    assert name_of(answer.error_code) == "CORRUPT_MESSAGE"


class TestTimestamps:
    def test_too_far_ahead_is_reported_with_the_index(self, calls: Calls, topic: str) -> None:
        answer = calls.produce(topic, batch(b"late", timestamp_ms=now_ms() + HOUR_MS + 60_000))
        assert name_of(answer.error_code) == "INVALID_TIMESTAMP"
        assert one(answer.record_errors).batch_index == 0
        assert not calls.produce(topic, batch(b"late", timestamp_ms=now_ms() + HOUR_MS - 60_000)).error_code

    def test_any_past_is_fine_unless_the_topic_says_otherwise(self, calls: Calls, topic: str) -> None:
        assert not calls.produce(topic, batch(b"old", timestamp_ms=5)).error_code
        strict = calls.create_topic(message_timestamp_before_max_ms=HOUR_MS)
        answer = calls.produce(strict, batch(b"old", timestamp_ms=5))
        assert name_of(answer.error_code) == "INVALID_TIMESTAMP"
        assert one(answer.record_errors).batch_index == 0
        assert not calls.produce(strict, batch(b"new")).error_code

    def test_no_timestamp_is_a_timestamp(self, calls: Calls, topic: str) -> None:
        assert not calls.produce(topic, batch(b"never", timestamp_ms=-1)).error_code

    def test_the_broker_stamps_where_the_topic_says_so(self, calls: Calls) -> None:
        topic = calls.create_topic(message_timestamp_type="LogAppendTime")
        before = now_ms()
        answer = calls.produce(topic, batch(b"a", b"b", timestamp_ms=before + 10 * HOUR_MS))
        assert before <= answer.log_append_time_ms <= now_ms()
        stored = bytes_of(calls.read(topic).records)
        _, header = next(iter(read_batches(stored)))
        assert {record.timestamp_ms for record in read_records(stored, header)} == {answer.log_append_time_ms}

    def test_the_producers_time_is_reported_as_none(self, calls: Calls, topic: str) -> None:
        assert calls.produce(topic, batch(b"a")).log_append_time_ms == -1


def test_a_compacted_topic_takes_only_records_with_keys(calls: Calls) -> None:
    topic = calls.create_topic(cleanup_policy="compact")
    answer = calls.produce(topic, batch(b"a", b"b", key=None))
    assert name_of(answer.error_code) == "INVALID_RECORD"
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert not calls.produce(topic, batch(b"a", None, key=b"k")).error_code, "a tombstone has a key"
    assert name_of(calls.produce(topic, batch(b"a", key=None), version=7).error_code) == "INVALID_RECORD"


def test_max_message_bytes_is_of_the_batch_as_it_is_sent(calls: Calls) -> None:
    data = batch(b"x" * 500)
    topic = calls.create_topic(max_message_bytes=len(data))
    assert not calls.produce(topic, data).error_code, "as large as allowed"
    answer = calls.produce(topic, batch(b"x" * 501))
    assert name_of(answer.error_code) == "MESSAGE_TOO_LARGE"
    assert not calls.produce(topic, batch(b"x" * 5000, compression="gzip")).error_code, "small once compressed"
    assert calls.list_end(topic) == 2


def test_message_max_bytes_of_the_broker_is_the_default(calls: Calls, topic: str) -> None:
    largest = 1_048_588
    filler = largest - len(batch(b"")) - 10
    data = batch(b"x" * filler)
    data = batch(b"x" * (filler + largest - len(data)))
    assert len(data) == largest
    assert not calls.produce(topic, data).error_code
    assert name_of(calls.produce(topic, batch(b"x" * largest)).error_code) == "MESSAGE_TOO_LARGE"


class TestAcks:
    def test_0_is_not_answered(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.send(ApiKey.PRODUCE, 11, produce_request(topic, batch(b"unheard"), acks=0))
        assert calls.list_end(topic) == 1, "the next answer on this connection is of the next request"

    def test_0_loses_its_connection_where_something_failed(self, calls: Calls, topic: str) -> None:
        calls.send(ApiKey.PRODUCE, 11, produce_request(topic, THREE + THREE, acks=0))
        assert calls.is_closed_by_peer()

    @pytest.mark.parametrize("acks", [1, -1])
    def test_1_and_all_are_answered_with_the_offset(self, calls: Calls, topic: str, acks: int) -> None:
        end = calls.list_end(topic)
        assert calls.produce(topic, THREE, acks=acks).base_offset == end
        assert calls.produce(topic, THREE, acks=acks).base_offset == end + 3

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_other_numbers_are_refused(self, calls: Calls, topic: str, acks: int) -> None:
        assert name_of(calls.produce(topic, THREE, acks=acks).error_code) == "INVALID_REQUIRED_ACKS"

    def test_no_more_replicas_are_asked_for_than_there_are(self, calls: Calls) -> None:
        topic = calls.create_topic(min_insync_replicas=3)
        assert not calls.produce(topic, THREE, acks=-1).error_code

    def test_answers_come_in_the_order_of_requests(self, calls: Calls, topic: str) -> None:
        end = calls.list_end(topic)
        sent = [
            calls.send(ApiKey.PRODUCE, 11, produce_request(topic, batch(b"x"), acks=number % 2 or -1))
            for number in range(200)
        ]
        answers = [calls.receive(ApiKey.PRODUCE, 11, correlation_id) for correlation_id in sent]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == list(range(end, end + 200))


def test_each_partition_is_answered_on_its_own(calls: Calls) -> None:
    topic = calls.create_topic(2)
    sent = [(0, THREE), (1, with_field(THREE, ">I", CRC, 1, sealed=False)), (2, THREE)]
    parts = [PartitionProduceData(index=index, records=data) for index, data in sent]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=parts),
            TopicProduceData(name=fresh_name("absent"), partition_data=[PartitionProduceData(index=0, records=THREE)]),
        ],
    )
    answers = {
        (each.name == topic, part.index): name_of(part.error_code)
        for each in calls.request(ApiKey.PRODUCE, 11, request).responses
        for part in each.partition_responses
    }
    assert answers == {
        (True, 0): "NONE",
        (True, 1): "CORRUPT_MESSAGE",
        (True, 2): "UNKNOWN_TOPIC_OR_PARTITION",
        (False, 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_topics_by_id(calls: Calls) -> None:
    topic = calls.create_topic()
    known = produce_request("", THREE, topic_id=calls.topic_id(topic))
    answer = one(calls.request(ApiKey.PRODUCE, 13, known).responses)
    assert answer.topic_id == calls.topic_id(topic)
    assert not answer.partition_responses[0].error_code
    unknown = calls.request(ApiKey.PRODUCE, 13, produce_request("", THREE, topic_id=uuid4()))
    assert name_of(unknown.responses[0].partition_responses[0].error_code) == "UNKNOWN_TOPIC_ID"


def test_internal_topics_are_not_for_clients(calls: Calls) -> None:
    calls.find_coordinator("any")  # makes the topic
    answer = calls.produce("__consumer_offsets", THREE)
    assert name_of(answer.error_code) == "INVALID_TOPIC_EXCEPTION"


def test_a_request_without_topics_is_answered(calls: Calls) -> None:
    assert calls.request(ApiKey.PRODUCE, 11, ProduceRequest(acks=1, timeout_ms=1000)).responses == []


@only_ours  # Kafka unpacks it in its heap
def test_a_compression_bomb_costs_little(calls: Calls, node: Node, topic: str) -> None:
    bomb = batch(bytes(200_000_000), compression="zstd")
    assert len(bomb) < 64_000
    before, worked_s = node.memory_bytes(), node.cpu_s()
    calls.produce(topic, bomb)
    assert node.cpu_s() - worked_s < 1
    assert node.memory_bytes() - before < 50_000_000


class TestIdempotence:
    @pytest.fixture
    def producer(self, calls: Calls) -> int:
        return calls.producer()

    @staticmethod
    def numbered(producer: int, sequence: int, *, count: int = 1, epoch: int = 0) -> bytes:
        return batch(*[b"x"] * count, producer_id=producer, producer_epoch=epoch, sequence=sequence)

    def send(self, calls: Calls, topic: str, *arguments: int, **fields: int) -> tuple[str, int]:
        answer = calls.produce(topic, self.numbered(*arguments, **fields))
        return name_of(answer.error_code), answer.base_offset

    def test_a_repeated_batch_is_stored_once(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        first = [self.send(calls, topic, producer, sequence) for sequence in range(5)]
        assert first == [("NONE", sequence) for sequence in range(5)]
        assert [self.send(calls, topic, producer, sequence) for sequence in range(5)] == first, (
            "the last five are known"
        )
        assert calls.list_end(topic) == 5

    def test_one_older_than_five_is_not_known_any_more(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        for sequence in range(7):
            self.send(calls, topic, producer, sequence)
        assert self.send(calls, topic, producer, 0)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert calls.list_end(topic) == 7

    def test_a_gap_is_refused(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        self.send(calls, topic, producer, 0, count=3)
        assert self.send(calls, topic, producer, 4) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        assert self.send(calls, topic, producer, 2) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        assert self.send(calls, topic, producer, 3) == ("NONE", 3)

    @only_ours
    @pytest.mark.parametrize("known", [True, False])
    def test_batches_behind_a_damaged_one_wait_for_its_retry(self, calls: Calls, producer: int, *, known: bool) -> None:
        topic = calls.create_topic()
        if known:
            self.send(calls, topic, producer, 0)
        first = int(known)
        damaged = with_field(self.numbered(producer, first), ">I", CRC, 12345, sealed=False)
        assert name_of(calls.produce(topic, damaged).error_code) == "CORRUPT_MESSAGE"
        assert self.send(calls, topic, producer, first + 1) == ("CORRUPT_MESSAGE", -1), "and not out of order"
        assert self.send(calls, topic, producer, first) == ("NONE", first)
        assert self.send(calls, topic, producer, first + 1) == ("NONE", first + 1)

    @only_ours
    @pytest.mark.parametrize("by_id", [False, True])
    def test_batches_behind_one_of_an_unknown_topic_wait_for_its_retry(
        self, calls: Calls, producer: int, *, by_id: bool
    ) -> None:
        """A broker whose image lacks a partition; where the topic has an id, it is known before that."""
        topic = fresh_name()
        assert self.send(calls, topic, producer, 0)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        calls.create_topic(name=topic)
        more: dict[str, Any] = {"version": 13, "topic_id": calls.topic_id(topic)} if by_id else {}
        early = calls.produce(topic, self.numbered(producer, 1), **more)
        assert name_of(early.error_code) == "UNKNOWN_TOPIC_OR_PARTITION", "it is not the producer's first"
        assert self.send(calls, topic, producer, 0) == ("NONE", 0)
        assert self.send(calls, topic, producer, 1) == ("NONE", 1)

    def test_a_batch_that_overlaps_is_no_repetition(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        self.send(calls, topic, producer, 0, count=3)
        assert self.send(calls, topic, producer, 0, count=2)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert self.send(calls, topic, producer, 0, count=4)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def test_an_unknown_producer_may_begin_anywhere(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        assert self.send(calls, topic, producer, 17) == ("NONE", 0)
        assert self.send(calls, topic, producer, 18) == ("NONE", 1)

    def test_a_new_epoch_begins_at_0_and_ends_the_old_one(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        self.send(calls, topic, producer, 0)
        assert self.send(calls, topic, producer, 1, epoch=1)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert self.send(calls, topic, producer, 0, epoch=1) == ("NONE", 1)
        assert self.send(calls, topic, producer, 1, epoch=0)[0] == "INVALID_PRODUCER_EPOCH"
        assert self.send(calls, topic, producer, 1, epoch=1) == ("NONE", 2)

    def test_sequences_wrap_around(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        last = 2**31 - 1
        assert self.send(calls, topic, producer, last - 1, count=2) == ("NONE", 0)
        assert self.send(calls, topic, producer, 0) == ("NONE", 2)
        assert self.send(calls, topic, producer, last - 1, count=2) == ("NONE", 0), "still known"

    def test_a_batch_over_the_end_of_sequences(self, calls: Calls, producer: int) -> None:
        topic = calls.create_topic()
        assert self.send(calls, topic, producer, 2**31 - 2, count=4) == ("NONE", 0)
        assert self.send(calls, topic, producer, 2) == ("NONE", 4)

    def test_producers_do_not_mind_each_other(self, calls: Calls, producer: int) -> None:
        topic, other = calls.create_topic(2), calls.producer()
        assert other != producer
        assert self.send(calls, topic, producer, 0) == ("NONE", 0)
        assert self.send(calls, topic, other, 0) == ("NONE", 1)
        assert not calls.produce(topic, self.numbered(producer, 0), partition=1).error_code

    @only_ours
    def test_a_restart_remembers(self, own_node: Node) -> None:
        with Calls(own_node.port) as calls:
            topic, producer = calls.create_topic(), calls.producer()
            for sequence in range(3):
                self.send(calls, topic, producer, sequence)
        own_node.kill()
        own_node.start()
        with Calls(own_node.port) as calls:
            calls.list_end(topic)
            assert self.send(calls, topic, producer, 2) == ("NONE", 2)
            assert self.send(calls, topic, producer, 4)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
            assert self.send(calls, topic, producer, 3) == ("NONE", 3)
            assert calls.producer() > producer, "an id is never given twice"


class TestRecompression:
    """compression.type other than producer: batches change off the loop and keep their order."""

    @pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
    def test_every_codec_is_what_the_topic_says(self, calls: Calls, codec: str) -> None:
        topic = calls.create_topic(compression_type=codec)
        sent = [*SQUEEZED.values(), THREE]
        for data in sent:
            assert not calls.produce(topic, data).error_code
        records = calls.read(topic, max_bytes=2**20).records
        known = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
        assert [header.compression for _, header in read_batches(bytes_of(records))] == [known[codec]] * len(sent)
        assert values_in(records) == [b"again" * 20] * 3 * len(SQUEEZED) + [b"one", b"two", b"three"]

    def test_a_batch_that_is_ready_does_not_overtake_one_that_is_not(self, calls: Calls) -> None:
        topic = calls.create_topic(compression_type="uncompressed")
        producer_id = calls.producer()
        for number in range(60):
            codec = "gzip" if number % 2 == 0 else "none"
            value = b"%d" % number + bytes(100_000 if number % 2 == 0 else 10)
            data = batch(value, compression=codec, producer_id=producer_id, producer_epoch=0, sequence=number)
            calls.send(ApiKey.PRODUCE, 9, produce_request(topic, data))
        for number in range(60):
            answer = one(one(calls.receive(ApiKey.PRODUCE, 9).responses).partition_responses)
            assert (answer.error_code, answer.base_offset) == (0, number)

    def test_a_refusal_is_reported_to_its_own_request_alone(self, calls: Calls) -> None:
        topic = calls.create_topic(compression_type="uncompressed")
        good = batch(b"x" * 50_000, compression="gzip")
        bad = with_byte(good, HEADER_BYTES + 20, 0xFF)
        for data in (good, bad, good):
            calls.send(ApiKey.PRODUCE, 9, produce_request(topic, data))
        answers = [one(one(calls.receive(ApiKey.PRODUCE, 9).responses).partition_responses) for _ in range(3)]
        assert [answer.base_offset for answer in answers] == [0, -1, 1]
        assert answers[1].error_code and not answers[0].error_code and not answers[2].error_code
