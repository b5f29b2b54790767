"""Links in tests: their state by the command, and the records and logs of a mirrored topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from tests.support.clients.cli import odradek
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "orders"


@contextmanager
def linked_node(folder: Path, source: Node, settings: Mapping[str, object] | None = None) -> Iterator[Node]:
    """A node with the link `west` to a source."""
    with Node(folder, settings) as node:
        odradek(node.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        yield node


def mirror_to(bootstrap: str, end: int) -> None:
    """Mirror TOPIC, and wait until it is here up to `end`."""
    odradek(bootstrap, "links", "mirror", "west", TOPIC)
    await_end(bootstrap, end)


def describe(bootstrap: str, link: str = "west") -> dict[str, Any]:
    """The state of a link, as the command reports it."""
    found: dict[str, Any] = odradek(bootstrap, "links", "describe", link, "--json").json
    return found


def rows_of(bootstrap: str, topic: str, link: str = "west") -> list[dict[str, Any]]:
    """The rows of a mirror's partitions."""
    return [row for row in describe(bootstrap, link)["partitions"] if row["topic"] == topic]


def await_end(bootstrap: str, end: int, link: str = "west") -> None:
    """Wait until partition 0 of TOPIC has all records of the source, up to `end`."""

    def ends() -> list[tuple[Any, Any]]:
        return [(row["end"], row["source_end"]) for row in rows_of(bootstrap, TOPIC, link)]

    eventually(lambda: ends() == [(end, end)], ends)


def records(prefix: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values."""
    return [(b"k", f"{prefix}-{number}".encode()) for number in range(count)]


def transactional(node: Node, name: str) -> Producer:
    """A producer whose open transactions do not time out during a test."""
    config = {"bootstrap.servers": node.bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, prefix: str, count: int) -> None:
    """Begin a transaction, and produce `records` to TOPIC in it."""
    producer.begin_transaction()
    for key, value in records(prefix, count):
        producer.produce(TOPIC, value, key)
    assert producer.flush(PATIENCE_S) == 0


def values(messages: list[Message]) -> list[tuple[int | None, bytes | str | None]]:
    """Offsets and values."""
    return [(each.offset(), each.value()) for each in messages]


def log_of(folder: Path, partition: str = f"{TOPIC}-0") -> bytes:
    """The bytes of all segments of a partition."""
    return b"".join(path.read_bytes() for path in sorted((folder / partition).glob("*.log")))
