"""A batch that is damaged, or of an old format, is reported with its place and the remedy, and nothing is skipped.

A node that has written a batch serves it without another look, so what is changed in its file then comes to the reader.
`test_decode` has damage of all kinds, `test_marker_topic` that of a marker's topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.record.batch import HEADER_BYTES, seal
from pyspark_odradek.client.cluster import ClientSettings, shared_cluster
from pyspark_odradek.client.offsets import OffsetRange
from pyspark_odradek.client.offsets import TopicPartition as OfTopic
from pyspark_odradek.errors import ClusterError
from pyspark_odradek.last_words import reason
from pyspark_odradek.source import planning
from pyspark_odradek.source.fetch import read_range
from pyspark_odradek.source.schema import source_schema
from tests.spark.queries import load
from tests.support.clients.api_calls import Calls, batch
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.node import Node

GIVE_UP = r"give it up: delete the partition's records up to it, it included \(kafka-delete-records\), and set failOn"
REPAIR = r"\. Repair the broker's log, from another replica where one has it whole; or " + GIVE_UP


def of_an_old_format(data: bytearray) -> None:
    data[16] = 1


def with_a_flipped_bit(data: bytearray) -> None:
    data[-20] ^= 1


def of_a_broken_producer(data: bytearray) -> None:
    data[HEADER_BYTES] ^= 2  # the length of its first record
    seal(data)


SAID: list[tuple[Callable[[bytearray], None], str]] = [
    (
        of_an_old_format,
        r"has record format v1; only v2 .* is read\. Let a client that reads the old format rewrite",
    ),
    (with_a_flipped_bit, r"is damaged: its checksum does not fit its bytes" + REPAIR),
    (of_a_broken_producer, r"is damaged: records? .*" + REPAIR),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("damaged")) as node:
        yield node


def damage(node: Node, topic: str, how: Callable[[bytearray], None]) -> None:
    """Write three batches of ten records, and damage the second one in the log's file."""
    create_topic(node.bootstrap, topic)
    with Calls(node.port) as calls:
        for first in (0, 10, 20):
            answer = calls.produce(topic, batch(*(b"value %02d" % n for n in range(first, first + 10))))
            assert not answer.error_code
    (path,) = (node.data_dir / f"{topic}-0").glob("*.log")
    size = path.stat().st_size // 3
    with path.open("r+b") as file:
        file.seek(size)
        data = bytearray(file.read(size))
        how(data)
        file.seek(size)
        file.write(data)


def read(node: Node, topic: str) -> list[int]:
    """The offsets of all records that are there."""
    settings = ClientSettings.parse({"bootstrap.servers": node.bootstrap})
    schema = to_arrow_schema(source_schema(True), timezone="UTC")
    found: list[int] = []
    for rows in read_range(settings, OffsetRange(topic, 0, 0, 30), schema, fail_on_data_loss=False):
        found += rows.column("offset").to_pylist()
    return found


@pytest.mark.parametrize(("how", "says"), SAID, ids=lambda each: getattr(each, "__name__", ""))
def test_damage_is_reported_with_its_place_and_a_remedy_that_works(
    node: Node, topic: str, how: Callable[[bytearray], None], says: str
) -> None:
    damage(node, topic, how)
    where = f"^{topic}-0 cannot be read from offset 0 on: the batch at offset 10"
    with pytest.raises(ClusterError, match=f"{where} {says}"):
        read(node, topic)
    client = admin(node.bootstrap)
    for future in client.delete_records([TopicPartition(topic, 0, 20)]).values():
        future.result(timeout=30)
    assert read(node, topic) == [*range(20, 30)]


def test_a_sample_of_its_bytes_says_it_too(node: Node, topic: str) -> None:
    """`maxBytesPerTrigger` looks at the first batches before anything is read."""
    damage(node, topic, of_an_old_format)
    cluster = shared_cluster(ClientSettings.parse({"bootstrap.servers": node.bootstrap}))
    says = rf"{topic}-0 cannot be read from offset 4 on: the batch at offset 10 has record format v1.*delete-records"
    with pytest.raises(ClusterError, match=says):
        planning.bytes_per_offset(cluster, {OfTopic(topic, 0): 4})


def test_damage_is_the_last_error_of_a_query(spark: Any, node: Node, topic: str) -> None:
    damage(node, topic, of_an_old_format)
    with pytest.raises(Exception) as raised:
        load(spark, node.bootstrap, subscribe=topic).count()
    said = reason(raised.value) or ""
    assert f"{topic}-0 cannot be read from offset 0 on: the batch at offset 10 has record format v1" in said
    assert said.endswith("and set failOnDataLoss=false")


def test_a_broker_that_finds_it_first(node: Node, topic: str) -> None:
    """After a start a broker verifies the batches that it reads, and serves no damaged one."""
    damage(node, topic, with_a_flipped_bit)
    node.stop()
    node.start()
    says = rf"from offset 10 on: the broker finds the batch there damaged \(CORRUPT_MESSAGE\){REPAIR}"
    with pytest.raises(ClusterError, match=f"{topic}-0 cannot be read {says}"):
        read(node, topic)
