"""Settings for a plan: of brokers, of Java clients, and of clients of librdkafka."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from odradek.cli.plan.sizing import Demand, Sizing

Profile = Literal["resilience", "throughput", "payload"]
Properties = dict[str, str]
WHAT = {
    "resilience": "no acknowledged record is lost and none is written twice; readers see whole transactions",
    "throughput": "large batches, compressed; records wait up to a fifth of the latency for others",
    "payload": "large events: limits, fetches and buffers hold some of them",
}
MIB = 1 << 20
# Kafka's own defaults, below which nothing is set.
DEFAULT_MESSAGE, DEFAULT_BUFFER = 1_048_588, 32 * MIB
# Of a record's frame and its batch's.
OVERHEAD = 1_024


def settings(profile: Profile, demand: Demand, sizing: Sizing) -> dict[str, Properties]:
    """The files by name, each with its settings."""
    broker, producer, consumer = _common(demand, sizing)
    if profile == "resilience":
        producer |= {"linger.ms": "5", "max.in.flight.requests.per.connection": "5"}
        consumer |= {"isolation.level": "read_committed", "enable.auto.commit": "false"}
    elif profile == "throughput":
        linger_ms = max(5, round(demand.latency_ms / 5))
        producer |= {
            "linger.ms": str(linger_ms),
            "compression.type": "lz4",
            "batch.size": str(_batch(sizing, MIB // 2)),
        }
        consumer |= {"fetch.min.bytes": str(MIB // 4), "fetch.max.wait.ms": str(linger_ms)}
    else:
        largest = math.ceil((demand.size + OVERHEAD) * 2 / MIB) * MIB
        broker |= {
            "message.max.bytes": str(max(DEFAULT_MESSAGE, largest)),
            "replica.fetch.max.bytes": str(max(DEFAULT_MESSAGE, largest)),
        }
        producer |= {"linger.ms": "0", "max.request.size": str(max(DEFAULT_MESSAGE, largest))}
        # Compressed data, such as pictures, does not shrink further.
        producer |= {"compression.type": "zstd"} if demand.compression > 1 else {}
        consumer |= {
            "max.partition.fetch.bytes": str(max(MIB, largest)),
            "fetch.max.bytes": str(max(50 * MIB, 8 * largest)),
        }
    return {
        "broker.properties": broker,
        "producer.properties": producer,
        "consumer.properties": consumer,
        "librdkafka-producer.properties": of_librdkafka(producer),
        "librdkafka-consumer.properties": of_librdkafka(consumer),
    }


def _common(demand: Demand, sizing: Sizing) -> tuple[Properties, Properties, Properties]:
    copies, min_isr = str(sizing.copies), str(sizing.min_isr)
    broker = {
        "num.partitions": str(sizing.partitions),
        "default.replication.factor": copies,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min_isr,
        "unclean.leader.election.enable": "false",
        "log.retention.ms": str(round(demand.retention_s * 1000)),
    }
    producer = {
        "acks": "all",
        "enable.idempotence": "true",
        "batch.size": str(sizing.batch_bytes),
        "buffer.memory": str(max(DEFAULT_BUFFER, math.ceil(sizing.buffer_bytes))),
        "delivery.timeout.ms": "120000",
    }
    return broker, producer, {"auto.offset.reset": "earliest"}


def _batch(sizing: Sizing, least: int) -> int:
    return max(sizing.batch_bytes, least)


def of_librdkafka(java: Mapping[str, str]) -> Properties:
    """The same settings in the names of librdkafka, without those that only Java clients have."""
    found: Properties = {}
    for key, value in java.items():
        if key == "buffer.memory":
            found["queue.buffering.max.kbytes"] = str(math.ceil(int(value) / 1024))
        elif key == "max.request.size":
            found["message.max.bytes"] = value
        elif key == "fetch.max.wait.ms":
            found["fetch.wait.max.ms"] = value
        else:
            found[key] = value
    return found


def as_text(properties: Mapping[str, str]) -> str:
    """The text of a properties file."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())
