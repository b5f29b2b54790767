"""Topics that mirror those of another cluster: the same bytes at the same offsets, by clients and by dumps."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from odradek.cli.app import run
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.transactions import TransactionalProducer
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

# With these a log is one file on both sides, whenever it was written.
QUIET = {"log.cleaner.backoff.ms": 20, "log.retention.check.interval.ms": 600_000}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("source"), QUIET) as node:
        yield node


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, source: Node) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("here"), QUIET) as node:
        odradek(node.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        yield node


def mirror(here: Node, topic: str) -> None:
    odradek(here.bootstrap, "links", "mirror", "west", topic)


def bytes_of(node: Node, topic: str, number: int = 0) -> bytes:
    """The bytes of all segments of a partition's log; empty if there is no log."""
    files = sorted((node.data_dir / f"{topic}-{number}").glob("*.log"))
    return b"".join(path.read_bytes() for path in files)


def await_equal(source: Node, here: Node, topic: str, *, partitions: int = 1) -> None:
    for number in range(partitions):
        eventually(
            lambda number=number: bytes_of(source, topic, number) == bytes_of(here, topic, number),
            lambda number=number: f"{topic}-{number}: {len(bytes_of(here, topic, number))} bytes are here",
        )


def dumped(node: Node, topic: str) -> str:
    """The lines of `odradek dump-log` for a log's batches and records, without their positions in files."""
    out = io.StringIO()
    for path in sorted((node.data_dir / f"{topic}-0").glob("*.log")):
        with contextlib.redirect_stdout(out):
            assert run(["dump-log", str(path), "--deep-iteration"]) == 0
    lines = [re.sub(r"position: \d+", "", line) for line in out.getvalue().splitlines()]
    return "\n".join(line for line in lines if line.startswith(("baseOffset", "|")))


def earliest(node: Node, topic: str) -> int:
    """The log start offset; -1 while there is no log."""
    partition = TopicPartition(topic, 0)
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    try:
        return int(client.list_offsets({partition: OffsetSpec.earliest()})[partition].result(PATIENCE_S).offset)
    except KafkaException:
        return -1


def records(prefix: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(f"k{number % 7}".encode(), f"{prefix}-{number}".encode()) for number in range(count)]


def write_transactions(node: Node, topic: str) -> None:
    """One that is aborted, one that is committed, and one more that is aborted."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"writer-of-{topic}"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for key, value in records("t", 20):
            producer.produce(topic, value, key)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)


def described(here: Node, topic: str) -> list[dict[str, object]]:
    """The rows of one topic, by partition."""
    rows = odradek(here.bootstrap, "links", "describe", "west", "--json").json["partitions"]
    return [row for row in rows if row["topic"] == topic]


def test_a_compacted_topic_with_transactions_is_the_same_on_both_sides(source: Node, here: Node) -> None:
    topic = "orders"
    create_topic(source.bootstrap, topic, cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio=0.01)
    for codec in ("none", "lz4", "zstd"):
        produce_all(source.bootstrap, topic, records(codec, 100), compression_type=codec, linger_ms=0)
    write_transactions(source, topic)
    produce_all(source.bootstrap, topic, records("last", 20))
    eventually(lambda: len(read_all(source.bootstrap, topic)) < 150, "compaction has removed records")
    change = "cleanup.policy=delete,segment.ms=604800000"
    odradek(source.bootstrap, "configs", "alter", "--topic", topic, "--add-config", change)
    mirror(here, topic)
    await_equal(source, here, topic)
    assert dumped(source, topic) == dumped(here, topic) != ""
    for level in ("read_committed", "read_uncommitted"):
        there, copied = (
            [(each.offset(), each.key(), each.value(), each.timestamp(), each.leader_epoch()) for each in read]
            for read in (read_all(node.bootstrap, topic, isolation_level=level) for node in (source, here))
        )
        assert there == copied
        assert there


def test_only_the_link_writes_to_a_mirror(source: Node, here: Node) -> None:
    topic = "read-only"
    create_topic(source.bootstrap, topic)
    produce_all(source.bootstrap, topic, records("r", 10))
    mirror(here, topic)
    await_equal(source, here, topic)
    errors: list[str] = []
    plain = Producer({"bootstrap.servers": here.bootstrap})
    in_transaction = Producer({"bootstrap.servers": here.bootstrap, "transactional.id": "of-a-mirror"})
    in_transaction.init_transactions(PATIENCE_S)
    in_transaction.begin_transaction()
    for producer in (plain, in_transaction):
        producer.produce(topic, b"mine", on_delivery=lambda error, _: errors.append(error.name() if error else "NONE"))
        assert producer.flush(PATIENCE_S) == 0
    # A transaction ends with the partition that may not join it.
    assert errors[0] == "INVALID_REQUEST"
    assert errors[1] in ("INVALID_REQUEST", "_PURGE_QUEUE")
    with TransactionalProducer(here.port, version=0) as older:
        assert older.init() == "NONE"
        assert older.add(topic) == "INVALID_REQUEST"
    client = AdminClient({"bootstrap.servers": here.bootstrap})
    with pytest.raises(KafkaException, match="mirror"):
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    partition = TopicPartition(topic, 0, 5)
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        client.delete_records([partition])[partition].result(PATIENCE_S)
    assert bytes_of(source, topic) == bytes_of(here, topic)


def test_partitions_deleted_records_and_pauses_follow(source: Node, here: Node) -> None:
    topic = "grows"
    create_topic(source.bootstrap, topic)
    produce_all(source.bootstrap, topic, records("a", 10))
    mirror(here, topic)
    await_equal(source, here, topic)
    client = AdminClient({"bootstrap.servers": source.bootstrap})
    partition = TopicPartition(topic, 0, 4)
    client.delete_records([partition])[partition].result(PATIENCE_S)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    eventually(lambda: earliest(here, topic) == 4, "the log's start follows")
    eventually(lambda: len(described(here, topic)) == 3, "the partitions follow")
    odradek(here.bootstrap, "links", "pause", "west", topic)
    produce_all(source.bootstrap, topic, records("b", 50))
    eventually(lambda: sum(int(str(row["lag"] or 0)) for row in described(here, topic)) == 50, "what is paused lags")
    assert {row["state"] for row in described(here, topic)} == {"paused"}
    refused = odradek(here.bootstrap, "links", "mirror", "west", topic, code=2)
    assert "is paused" in refused.err, "it goes on when that is asked for"
    odradek(here.bootstrap, "links", "resume", "west", topic)
    await_equal(source, here, topic, partitions=3)
    eventually(lambda: [row["lag"] for row in described(here, topic)] == [0, 0, 0], "nothing lags")


def test_a_log_whose_beginning_is_gone_is_mirrored_from_its_start(source: Node, here: Node) -> None:
    topic = "late"
    create_topic(source.bootstrap, topic)
    produce_all(source.bootstrap, topic, records("a", 10))
    produce_all(source.bootstrap, topic, records("b", 10))
    client = AdminClient({"bootstrap.servers": source.bootstrap})
    partition = TopicPartition(topic, 0, 15)
    client.delete_records([partition])[partition].result(PATIENCE_S)
    mirror(here, topic)
    eventually(lambda: earliest(here, topic) == 15, "the mirror begins where the source does")
    eventually(lambda: [row["end"] for row in described(here, topic)] == [20], "it has all that is there")
    there, copied = ([(each.offset(), each.value()) for each in read_all(n.bootstrap, topic)] for n in (source, here))
    assert there == copied


def test_a_topic_that_exists_becomes_no_mirror(source: Node, here: Node) -> None:
    create_topic(here.bootstrap, "own")
    refused = odradek(here.bootstrap, "links", "mirror", "west", "own", code=None)
    assert refused.code
    assert "records of its own" in refused.err


def test_a_link_with_mirrors_is_not_deleted(here: Node) -> None:
    mirror(here, "not-created-yet")
    assert odradek(here.bootstrap, "links", "delete", "west", "--yes", code=2).err.count("delete these topics first")


@pytest.mark.slow
def test_a_link_outlives_restarts_and_ends_with_its_topics(tmp_path: Path) -> None:
    topic = "t"
    with Node(tmp_path / "source") as source, Node(tmp_path / "here") as here:
        create_topic(source.bootstrap, topic)
        odradek(here.bootstrap, "links", "create", "east", "--source", source.bootstrap)
        odradek(here.bootstrap, "links", "mirror", "east", topic)
        for node in (source, here, source):
            produce_all(source.bootstrap, topic, records("r", 30))
            await_equal(source, here, topic)
            node.kill()
            node.start()
        produce_all(source.bootstrap, topic, records("s", 30))
        await_equal(source, here, topic)
        epochs = {each.leader_epoch() for each in read_all(here.bootstrap, topic)}
        assert len(epochs) > 1
        odradek(here.bootstrap, "topics", "delete", "--topic", topic)

        def listed() -> list[tuple[str, int]]:
            return [(row["link"], row["topics"]) for row in odradek(here.bootstrap, "links", "list", "--json").json]

        eventually(lambda: listed() == [("east", 0)], lambda: listed())
        odradek(here.bootstrap, "links", "delete", "east", "--yes")
        assert odradek(here.bootstrap, "links", "list", "--json").json == []
