"""Mirrors become topics: open transactions of the source are aborted, and clients go on at the very next record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from odradek.record.batch import BatchHeader
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all, read_committed
from tests.support.clients.links import (
    TOPIC,
    await_end,
    describe,
    linked_node,
    log_of,
    mirror_to,
    records,
    rows_of,
    transactional,
    values,
    write,
)
from tests.support.nodes.cluster import topic_at
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "source") as node:
        yield node


@pytest.fixture
def here(tmp_path: Path, source: Node) -> Iterator[Node]:
    with linked_node(tmp_path / "here", source) as node:
        yield node


class Reader:
    """A consumer of committed records that stays while the mirror becomes a topic."""

    def __init__(self, bootstrap: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self.consumer = Consumer({**config, "auto.offset.reset": "error", "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read(self, count: int) -> list[tuple[int | None, bytes | str | None]]:
        found: list[Message] = []

        def take() -> bool:
            got = self.consumer.consume(count - len(found), timeout=0.2)
            assert not any(each.error() for each in got), [str(each.error()) for each in got]
            found.extend(got)
            return len(found) == count

        eventually(take, lambda: f"{len(found)} records of {count}")
        return values(found)


def test_clients_go_on_at_the_very_next_record(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, TOPIC)
    there = transactional(source, "writer")
    write(there, "committed", 5)
    there.commit_transaction(PATIENCE_S)
    write(there, "open", 5)
    mirror_to(here.bootstrap, 11)
    reader = Reader(here.bootstrap)
    assert reader.read(5) == [(number, f"committed-{number}".encode()) for number in range(5)]
    odradek(here.bootstrap, "links", "promote", "west", TOPIC, "--yes")
    # An abort marker at 11, and the end of the mirror at 12. The first id that this cluster gives is the source's too.
    own = transactional(here, "writer")
    write(own, "own", 3)
    own.commit_transaction(PATIENCE_S)
    expected = [(13 + number, f"own-{number}".encode()) for number in range(3)]
    assert reader.read(3) == expected
    reader.consumer.close()
    # The link does not copy a transaction that the source commits after the promotion.
    there.commit_transaction(PATIENCE_S)
    here.kill()
    here.start()
    write(own, "after", 2)
    own.commit_transaction(PATIENCE_S)
    # A coordinator that starts again may write the end of the last transaction twice, so offsets may have a gap more.
    seen = values(read_committed(here.bootstrap, TOPIC))
    assert seen[5:8] == expected
    assert [value for _, value in seen[8:]] == [b"after-0", b"after-1"]
    assert ends_of_mirror(here.data_dir) == 1
    assert len(read_all(here.bootstrap, TOPIC, isolation_level="read_uncommitted")) == 15
    assert describe(here.bootstrap)["partitions"] == []
    again = odradek(here.bootstrap, "links", "promote", "west", TOPIC, "--yes")
    assert "nothing" in again.out
    odradek(here.bootstrap, "links", "delete", "west", "--yes")
    produce_all(here.bootstrap, TOPIC, records("last", 1))
    # The old source begins again, as a mirror of what was promoted.
    odradek(source.bootstrap, "topics", "delete", "--topic", TOPIC)
    odradek(source.bootstrap, "links", "create", "back", "--source", here.bootstrap)
    odradek(source.bootstrap, "links", "mirror", "back", TOPIC)
    eventually(lambda: log_of(source.data_dir) == log_of(here.data_dir), "the mirror has the same bytes")


def test_failover_says_what_may_be_missing(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, TOPIC)
    produce_all(source.bootstrap, TOPIC, records("a", 10))
    mirror_to(here.bootstrap, 10)
    odradek(here.bootstrap, "links", "pause", "west", TOPIC)
    produce_all(source.bootstrap, TOPIC, records("b", 7))
    eventually(lambda: [row["lag"] for row in rows_of(here.bootstrap, TOPIC)] == [7], "what is paused lags")
    source.stop()
    eventually(lambda: all(row["reason"] for row in rows_of(here.bootstrap, TOPIC)), "the source is gone")
    assert "links failover" in odradek(here.bootstrap, "links", "promote", "west", "--yes", code=2).err
    odradek(here.bootstrap, "links", "mirror", "west", "never-made")
    assert "not here yet" in odradek(here.bootstrap, "links", "failover", "west", "never-made", "--yes", code=2).err
    asked = odradek(here.bootstrap, "links", "failover", "west", code=2)
    assert "never-made is not here yet" in asked.out
    assert "7 offsets of the source are missing here" in asked.err
    done = odradek(here.bootstrap, "links", "failover", "west", "--yes", "--json").json
    assert (done["topics"], done["left_out"]) == ([TOPIC], ["never-made"])
    assert [(row["end"], row["source_end"], row["missing"]) for row in done["partitions"]] == [(10, 17, 7)]
    produce_all(here.bootstrap, TOPIC, records("c", 1))
    assert values(read_all(here.bootstrap, TOPIC))[-1] == (11, b"c-0")


def test_a_topic_that_was_promoted_is_an_ordinary_one(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, TOPIC)
    produce_all(source.bootstrap, TOPIC, records("a", 3))
    mirror_to(here.bootstrap, 3)
    odradek(here.bootstrap, "links", "promote", "west", "--yes")
    refused = odradek(here.bootstrap, "links", "mirror", "west", TOPIC, code=None)
    assert refused.code
    assert "was promoted" in refused.err
    odradek(here.bootstrap, "topics", "alter", "--topic", TOPIC, "--partitions", 3)
    produce_all(here.bootstrap, TOPIC, [(f"{number}".encode(), b"x") for number in range(30)])
    found = read_all(here.bootstrap, TOPIC, 3)
    assert len(found) == 33
    begins = {each.partition(): each.offset() for each in reversed(found)}
    assert begins == {0: 0, 1: 1, 2: 1}, "the end of a mirror is the first batch of a new partition"
    odradek(here.bootstrap, "topics", "delete", "--topic", TOPIC)

    def mirrored_again() -> bool:
        return odradek(here.bootstrap, "links", "mirror", "west", TOPIC, code=None).code == 0

    eventually(mirrored_again, "its settings went with the topic")
    await_end(here.bootstrap, 3)


def ends_of_mirror(folder: Path) -> int:
    """The number of control batches without producer id in a log: the ends of its mirror."""
    data, position, count = memoryview(log_of(folder)), 0, 0
    while position < len(data):
        header = BatchHeader.read(data[position:])
        count += header.is_control and not header.has_producer_id
        position += header.size_bytes
    return count


def test_a_leader_dies_as_it_is_promoted_and_the_next_one_ends_the_mirror(source: Node, tmp_path: Path) -> None:
    create_topic(source.bootstrap, TOPIC)
    there = transactional(source, "writer")
    write(there, "open", 4)
    with ProcessCluster(tmp_path / "cluster", brokers=3) as cluster:
        odradek(cluster.bootstrap_servers, "links", "create", "west", "--source", source.bootstrap)
        mirror_to(cluster.bootstrap_servers, 4)

        def leader() -> int:
            node = next(each for each in cluster.brokers if each.running)
            (partition,) = topic_at(node, TOPIC).partitions
            return partition.leader_id

        eventually(lambda: len(topic_at(cluster.brokers[0], TOPIC).partitions[0].isr_nodes) == 3, "all are in sync")
        first = leader()
        cluster[first].pause()
        command = f"odradek.link.west.mirror.{TOPIC}=promoted"
        others = ",".join(node.bootstrap for node in cluster.brokers if node.node_id != first)
        odradek(others, "configs", "alter", "--entity-type", "brokers", "--entity-default", "--add-config", command)
        cluster[first].kill()
        eventually(lambda: leader() not in (-1, first), "another one leads")
        produce_all(cluster.bootstrap_servers, TOPIC, records("own", 5), acks="all")
        cluster[first].start()
        eventually(lambda: len({log_of(node.plan.data_dir) for node in cluster.brokers}) == 1, "replicas are alike")
        assert log_of(cluster[first].plan.data_dir).startswith(log_of(source.data_dir))
        seen = values(read_committed(cluster.bootstrap_servers, TOPIC))
        assert seen == [(6 + number, f"own-{number}".encode()) for number in range(5)]
