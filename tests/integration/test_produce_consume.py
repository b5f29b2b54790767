"""A stock client reads what it wrote: all codecs, sizes, headers, nulls; in order, once."""

from __future__ import annotations

import asyncio
import random

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_every_codec_passes_through_in_order(node: Node, codec: str, idempotent: bool) -> None:
    topic = f"codec-{codec}-{idempotent}"
    create_topic(node.bootstrap, topic, 3)
    records = [(str(n % 7).encode(), f"value {n} ".encode() * 10) for n in range(3000)]
    delivered = produce_all(node.bootstrap, topic, records, compression_type=codec, enable_idempotence=idempotent)
    assert len(delivered) == len(records)

    by_partition: dict[int | None, list[tuple[object, object]]] = {}
    for message in delivered:
        by_partition.setdefault(message.partition(), []).append((message.key(), message.value()))
    for message in read_all(node.bootstrap, topic, 3):
        assert by_partition[message.partition()].pop(0) == (message.key(), message.value())
    assert not any(by_partition.values())


@pytest.mark.parametrize("size", [1, 100, 10_000, 1_000_000, 10_000_000])
def test_records_from_one_byte_to_ten_megabytes(node: Node, size: int) -> None:
    topic = f"size-{size}"
    create_topic(node.bootstrap, topic, 1, max_message_bytes=11_000_000)
    payload = random.Random(size).randbytes(size)
    produce_all(node.bootstrap, topic, [(b"k", payload)] * 3, message_max_bytes=11_000_000)
    assert [message.value() for message in read_all(node.bootstrap, topic)] == [payload] * 3


def test_a_record_over_the_topic_limit_is_refused_and_the_next_one_stored(node: Node) -> None:
    create_topic(node.bootstrap, "limited", 1, max_message_bytes=1000)
    with pytest.raises(AssertionError, match=r"MSG_SIZE_TOO_LARGE|Message size too large"):
        produce_all(node.bootstrap, "limited", [(None, b"x" * 5000)])
    produce_all(node.bootstrap, "limited", [(None, b"fits")])
    assert [message.value() for message in read_all(node.bootstrap, "limited")] == [b"fits"]


def test_null_keys_null_values_empty_ones_and_tombstones(node: Node) -> None:
    records = [(None, b"no key"), (b"no value", None), (None, None), (b"", b""), (b"gone", None)]
    create_topic(node.bootstrap, "nulls")
    produce_all(node.bootstrap, "nulls", records)
    assert [(message.key(), message.value()) for message in read_all(node.bootstrap, "nulls")] == records


def test_headers_and_timestamps_come_back(node: Node) -> None:
    create_topic(node.bootstrap, "headers")
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ünï", b"\x00\xff")]
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("headers", value=b"v", headers=headers, timestamp=1_700_000_000_123)  # type: ignore[arg-type]  # its hints know no null in a header
    assert producer.flush(90) == 0
    (message,) = read_all(node.bootstrap, "headers")
    assert message.headers() == headers
    assert message.timestamp() == (1, 1_700_000_000_123)


def test_log_append_time_is_the_brokers(node: Node) -> None:
    create_topic(node.bootstrap, "stamped", 1, message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce("stamped", value=b"v", timestamp=1_700_000_000_123)
    assert producer.flush(90) == 0
    (message,) = read_all(node.bootstrap, "stamped")
    kind, timestamp = message.timestamp()
    assert kind == 2
    assert timestamp > 1_750_000_000_000


def test_acks_zero_and_acks_one_are_stored(node: Node) -> None:
    create_topic(node.bootstrap, "acks")
    for acks in ("0", "1"):
        produce_all(node.bootstrap, "acks", [(None, f"{acks}-{n}".encode()) for n in range(500)], acks=acks)
    # No response says when a record with acks=0 is stored; it came over a connection of its own.
    eventually(lambda: len(read_all(node.bootstrap, "acks")) == 1000)


def test_an_unknown_topic_is_created_and_a_bad_name_refused(node: Node) -> None:
    produce_all(node.bootstrap, "made-by-use", [(None, b"v")])
    assert [message.value() for message in read_all(node.bootstrap, "made-by-use")] == [b"v"]
    for name in ("..", "a/b", "x" * 250, "späti"):
        with pytest.raises(KafkaException) as caught:
            create_topic(node.bootstrap, name)
        assert caught.value.args[0].code() == KafkaError.TOPIC_EXCEPTION, name


def test_names_that_collide_as_metrics_are_refused(node: Node) -> None:
    create_topic(node.bootstrap, "collide.a")
    with pytest.raises(KafkaException) as caught:
        create_topic(node.bootstrap, "collide_a")
    assert caught.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_a_restarted_node_has_everything(own_node: Node) -> None:
    create_topic(own_node.bootstrap, "kept", 2)
    records = [(str(n).encode(), f"v{n}".encode()) for n in range(2000)]
    produce_all(own_node.bootstrap, "kept", records)
    for end in (own_node.stop, own_node.kill):
        end()
        own_node.start()
        assert sorted(message.value() or b"" for message in read_all(own_node.bootstrap, "kept", 2)) == sorted(
            value for _, value in records
        )


OTHER_CLIENT_RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (None, b"no key", []),
    (b"tombstone", None, [("why", b"gone")]),
    (b"", b"", []),
    (b"headers", b"v", [("a", b"1"), ("a", b"2"), ("empty", b"")]),
    (b"large", random.Random(1).randbytes(10_000_000), []),
    *((str(number).encode(), b"v" * number, []) for number in range(1, 1000)),
]


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_writes_and_reads(node: Node, codec: str | None) -> None:
    kafka = pytest.importorskip("kafka")
    topic = f"kafka-python-{codec}"
    create_topic(node.bootstrap, topic, 1, max_message_bytes=11_000_000)
    producer = kafka.KafkaProducer(
        bootstrap_servers=node.bootstrap, compression_type=codec, enable_idempotence=True, max_request_size=11_000_000
    )
    sent = [producer.send(topic, key=key, value=value, headers=headers) for key, value, headers in OTHER_CLIENT_RECORDS]
    producer.flush(90)
    assert [future.get(90).offset for future in sent] == list(range(len(sent)))
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", group_id=None)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    found = [next(consumer) for _ in sent]
    assert [(each.key, each.value, list(each.headers)) for each in found] == OTHER_CLIENT_RECORDS
    assert consumer.end_offsets([partition]) == {partition: len(sent)}
    consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_writes_and_reads(node: Node, codec: str | None) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    topic = f"aiokafka-{codec}"
    await asyncio.to_thread(create_topic, node.bootstrap, topic, 1, max_message_bytes=11_000_000)
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=node.bootstrap, compression_type=codec, enable_idempotence=True, max_request_size=11_000_000
    ) as producer:
        sent = [
            await producer.send(topic, key=key, value=value, headers=headers)
            for key, value, headers in OTHER_CLIENT_RECORDS
        ]
        assert [(await future).offset for future in sent] == list(range(len(sent)))
    async with (
        aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", group_id=None
        ) as consumer,
        asyncio.timeout(120),
    ):
        found = [await consumer.getone() for _ in sent]
    assert [(each.key, each.value, list(each.headers)) for each in found] == OTHER_CLIENT_RECORDS
