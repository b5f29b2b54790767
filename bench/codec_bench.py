"""Microseconds of the codec on the two messages that matter most, beside kio and kafka-python in the same run.

    python -m bench.codec_bench

Produce has one topic and one partition with 100 bytes of records (aim: at most 5 us); Fetch has one topic and 100
partitions (aim: at most 60 us to decode the request, and to encode the response without its records).
"""

from __future__ import annotations

import io
import timeit
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kio.index import load_entity_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from odradek.protocol.codec import decode, encode, encode_chunks
from odradek.protocol.declare import Message
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

ROUNDS = 7
SECONDS_PER_ROUND = 0.05
TOPIC_ID = UUID(int=0x1234567890ABCDEF)


def produce_request() -> ProduceRequest:
    """One topic, one partition."""
    partition = PartitionProduceData(index=3, records=b"r" * 100)
    topics = [TopicProduceData(name="a-topic-name", partition_data=[partition])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def fetch_request() -> FetchRequest:
    """One topic, a hundred partitions."""
    partitions = [FetchPartition(partition=i, fetch_offset=1000 + i, partition_max_bytes=1 << 20) for i in range(100)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)])


def fetch_response() -> FetchResponse:
    """One topic, a hundred partitions, no records."""
    partitions = [
        PartitionData(partition_index=i, high_watermark=9, last_stable_offset=9, log_start_offset=0, records=None)
        for i in range(100)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def microseconds(work: Callable[[], Any]) -> float:
    """The best of some rounds."""
    count, _ = timeit.Timer(work).autorange()
    number = max(1, int(count * SECONDS_PER_ROUND / 0.2))
    return min(timeit.repeat(work, number=number, repeat=ROUNDS)) / number * 1e6


def contenders(message: Message, version: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(decode, encode) of each codec for the same bytes."""
    cls = type(message)
    data = encode(message, version)
    frame = bytearray(data)
    stem, _, kind = cls.__module__.rpartition(".")[2].rpartition("_")
    entity_kind: Any = EntityType[kind]
    entity = getattr(load_entity_module(stem, version, entity_kind), cls.__name__)
    reader, writer = entity_reader(entity), entity_writer(entity)
    in_kio, _ = reader(data, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka.protocol.consumer
        import kafka.protocol.producer
    package = kafka.protocol.producer if stem == "produce" else kafka.protocol.consumer
    theirs = getattr(package, cls.__name__)
    in_kafka_python = theirs.decode(data, version=version)
    in_kafka_python._header = None
    return {
        "odradek": (lambda: decode(cls, frame, version), lambda: encode_chunks(message, version)),
        "kio": (lambda: reader(data, 0), lambda: writer(io.BytesIO(), in_kio)),
        "kafka-python": (
            lambda: theirs.decode(data, version=version),
            lambda: in_kafka_python.encode(version=version),
        ),
    }


class CodecCost(NamedTuple):
    """Microseconds for one message, one way."""

    what: str
    aim_us: float
    ours_us: float
    kio_us: float
    kafka_python_us: float


def measure() -> list[CodecCost]:
    """Measure encoding and decoding of every message by all three codecs."""
    cases = [
        ("Produce request v9, 1 partition", produce_request(), 9, 5),
        ("Fetch request v17, 100 partitions", fetch_request(), 17, 60),
        ("Fetch response v17, 100 partitions", fetch_response(), 17, 60),
    ]
    costs = []
    for label, message, version, aim_us in cases:
        codecs = contenders(message, version)
        for side, what in enumerate(("decode", "encode")):
            ours, kio, kafka_python = (microseconds(work[side]) for work in codecs.values())
            costs.append(CodecCost(f"{label}, {what}", aim_us, ours, kio, kafka_python))
    return costs


def main() -> None:
    """Measure and print the table."""
    print(f"{'':44} {'aim':>5} {'odradek':>9} {'kio':>9} {'kafka-py':>9}   ratio to kio, to kafka-python")
    for cost in measure():
        print(
            f"{cost.what:44} {cost.aim_us:5} {cost.ours_us:9.2f} {cost.kio_us:9.2f} {cost.kafka_python_us:9.2f}"
            f"   {cost.ours_us / cost.kio_us:.2f}, {cost.ours_us / cost.kafka_python_us:.2f}"
        )


if __name__ == "__main__":
    main()
