"""A mirror of a topic of Apache Kafka: the same bytes at the same offsets, over transactions and a restart there."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.only_ours, pytest.mark.timeout(600)]

TOPIC = "orders"


def log_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"{TOPIC}-0").glob("*.log")))


def write_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(TOPIC, b"t-%d" % number, b"k")
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)


def test_a_topic_of_kafka_is_mirrored_byte_for_byte(tmp_path: Path) -> None:
    require_kafka()
    with ApacheKafka(tmp_path / "kafka") as source, Node(tmp_path / "here") as here:
        create_topic(source.bootstrap, TOPIC, 1)
        produce_all(source.bootstrap, TOPIC, [(b"k", b"v-%d" % number) for number in range(200)])
        odradek(here.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        odradek(here.bootstrap, "links", "mirror", "west", TOPIC)
        write_transactions(source.bootstrap)

        def alike() -> bool:
            return log_of(here.data_dir) == log_of(source.data_dir)

        eventually(alike, "the mirror has all")
        source.stop()
        source.start()
        produce_all(source.bootstrap, TOPIC, [(b"k", b"w-%d" % number) for number in range(50)])
        eventually(alike, "the mirror has what came after the restart")
        ours, theirs = read_all(here.bootstrap, TOPIC), read_all(source.bootstrap, TOPIC)
        assert [(each.offset(), each.value()) for each in ours] == [(each.offset(), each.value()) for each in theirs]
        assert len(ours) == 270
