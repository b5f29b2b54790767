"""What follows over a link besides records: groups' offsets, by lists, and nothing that no list has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.links import describe, rows_of
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "source") as node:
        yield node


@pytest.fixture
def here(tmp_path: Path, source: Node) -> Iterator[Node]:
    with Node(tmp_path / "here") as node:
        odradek(node.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        yield node


def alter(here: Node, **settings: str) -> None:
    """Change settings of the link; _ stands for a dot."""
    given = [part for key, text in settings.items() for part in ("--set", f"{key.replace('_', '.')}={text}")]
    odradek(here.bootstrap, "links", "alter", "west", *given)


def consumer(node: Node, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})


def commit(node: Node, group: str, offset: int, topic: str) -> None:
    reader = consumer(node, group)
    try:
        reader.commit(offsets=[TopicPartition(topic, 0, offset, f"at {offset}")], asynchronous=False)
    finally:
        reader.close()


def committed(node: Node, group: str, topic: str) -> int:
    """-1001 where there is nothing."""
    reader = consumer(node, group)
    try:
        return int(reader.committed([TopicPartition(topic, 0)], PATIENCE_S)[0].offset)
    finally:
        reader.close()


def test_offsets_of_listed_groups_follow_until_they_live_here(source: Node, here: Node) -> None:
    for topic in ("orders", "payments"):
        create_topic(source.bootstrap, topic)
        produce_all(source.bootstrap, topic, [(b"k", f"{number}".encode()) for number in range(20)])
    create_topic(here.bootstrap, "payments")
    for group, offset in (("billing-a", 7), ("billing-b", 20), ("billing-test", 3), ("other", 5)):
        commit(source, group, offset, "orders")
        commit(source, group, offset, "payments")
    odradek(here.bootstrap, "links", "mirror", "west", "orders")
    filters = [
        {"name": "billing", "patternType": "PREFIXED", "filterType": "INCLUDE"},
        {"name": "billing-test", "patternType": "LITERAL", "filterType": "EXCLUDE"},
    ]
    alter(
        here,
        consumer_offset_sync_enable="true",
        consumer_offset_sync_ms="1000",
        consumer_offset_group_filters=json.dumps({"groupFilters": filters}),
    )
    for group, offset in (("billing-a", 7), ("billing-b", 20)):
        eventually(lambda group=group, offset=offset: committed(here, group, "orders") == offset)
    commit(source, "billing-b", 19, "orders")
    eventually(lambda: committed(here, "billing-b", "orders") == 19, "a group that goes back is followed too")
    for group, topic in (("billing-test", "orders"), ("other", "orders"), ("billing-a", "payments")):
        assert committed(here, group, topic) < 0, (group, topic)

    reader = consumer(here, "billing-a")
    try:
        reader.subscribe(["orders"])
        first = eventually(lambda: reader.poll(0.1))
        assert (first.offset(), first.value()) == (7, b"7")
        commit(source, "billing-a", 11, "orders")
        commit(source, "billing-b", 12, "orders")
        eventually(lambda: committed(here, "billing-b", "orders") == 12)
        reader.commit(message=first, asynchronous=False)
        assert reader.committed([TopicPartition("orders", 0)], PATIENCE_S)[0].offset == 8
    finally:
        reader.close()
    eventually(lambda: committed(here, "billing-a", "orders") == 11, "it follows again once nobody lives here")
    assert describe(here.bootstrap)["beside"] == {}


def test_an_offset_waits_for_the_records_below_it(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, "orders")
    produce_all(source.bootstrap, "orders", [(b"k", b"v")] * 5)
    odradek(here.bootstrap, "links", "mirror", "west", "orders")
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, "orders")] == [5])
    odradek(here.bootstrap, "links", "pause", "west", "orders")
    produce_all(source.bootstrap, "orders", [(b"k", b"v")] * 5)
    for group, offset in (("g1", 10), ("g2", 4)):
        commit(source, group, offset, "orders")
    everything = json.dumps({"groupFilters": [{"name": "*"}]})
    alter(
        here,
        consumer_offset_sync_enable="true",
        consumer_offset_sync_ms="1000",
        consumer_offset_group_filters=everything,
    )
    eventually(lambda: committed(here, "g2", "orders") == 4)
    assert committed(here, "g1", "orders") < 0
    odradek(here.bootstrap, "links", "resume", "west", "orders")
    eventually(lambda: committed(here, "g1", "orders") == 10)
