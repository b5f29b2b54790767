"""Two clusters that mirror each other's topics of one name, each with a prefix; and the way back of such a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.common.errors import ErrorCode
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clients.api_calls import Calls
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.links import rows_of
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

FOLLOWING = {
    "topic.config.sync.enable": "true",
    "topic.config.sync.ms": "1000",
    "consumer.offset.sync.enable": "true",
    "consumer.offset.sync.ms": "1000",
    "consumer.offset.group.filters": json.dumps({"groupFilters": [{"name": "billing"}]}),
}


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("west")) as node:
        yield node


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory, west: Node) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("east")) as node:
        for here, there, name in ((node, west, "west"), (west, node, "east")):
            settings = [word for key, text in FOLLOWING.items() for word in ("--set", f"{key}={text}")]
            command = "links", "create", name, "--source", there.bootstrap, "--prefix", f"{name}.", *settings
            odradek(here.bootstrap, *command)
        yield node


def values(side: str, first: int, last: int) -> list[bytes]:
    return [f"{side}-{number}".encode() for number in range(first, last)]


def write(node: Node, topic: str, some: list[bytes]) -> None:
    produce_all(node.bootstrap, topic, [(b"k", value) for value in some])


def await_end(node: Node, topic: str, link: str, end: int) -> None:
    eventually(
        lambda: [(row["end"], row["source_end"]) for row in rows_of(node.bootstrap, topic, link)] == [(end, end)],
        lambda: rows_of(node.bootstrap, topic, link),
    )


def read_by_pattern(node: Node, count: int) -> list[tuple[str, bytes]]:
    """(topic, value) of `count` records that a group reads from all topics whose names end with orders.

    The topics are sorted; the values of each topic are in the order in which the group got them.
    """
    settings = {"group.id": "all-orders", "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
    consumer = Consumer({"bootstrap.servers": node.bootstrap, **settings})
    consumer.subscribe(["^(.*\\.)?orders$"])
    found: list[tuple[str, bytes]] = []

    def all_are_there() -> bool:
        found.extend(
            (str(each.topic()), bytes(each.value() or b"")) for each in consumer.consume(100, 0.2) if not each.error()
        )
        return len(found) >= count

    try:
        eventually(all_are_there, lambda: found)
    finally:
        consumer.close()
    return sorted(found, key=lambda each: each[0])


def commit(node: Node, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(node: Node, *topics: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "billing"})
    found = consumer.committed([TopicPartition(topic, 0) for topic in topics], PATIENCE_S)
    consumer.close()
    return [each.offset for each in found]


def topics_of(node: Node) -> set[str]:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    return {name for name in client.list_topics(timeout=PATIENCE_S).topics if not name.startswith("__")}


def test_both_sides_have_both_topics_and_nothing_comes_back(west: Node, east: Node) -> None:
    create_topic(west.bootstrap, "orders", retention_ms=7_200_000)
    create_topic(east.bootstrap, "orders")
    for node, side in ((west, "west"), (east, "east")):
        write(node, "orders", values(side, 0, 20))
    commit(west, "orders", 7)
    commit(east, "orders", 11)
    mirrored = odradek(east.bootstrap, "links", "mirror", "west", "orders")
    assert mirrored.out == "west: mirrors west.orders\n"
    odradek(west.bootstrap, "links", "mirror", "east", "orders")
    for node, side in ((west, "west"), (east, "east")):
        write(node, "orders", values(side, 20, 50))
    for node, own, other in ((west, "west", "east"), (east, "east", "west")):
        await_end(node, f"{other}.orders", other, 50)
        wanted = [(f"{other}.orders", value) for value in values(other, 0, 50)]
        wanted += [("orders", value) for value in values(own, 0, 50)]
        assert read_by_pattern(node, 100) == sorted(wanted, key=lambda each: each[0])
        assert topics_of(node) == {"orders", f"{other}.orders"}
    eventually(lambda: committed(east, "west.orders", "orders") == [7, 11], lambda: committed(east, "west.orders"))
    eventually(lambda: committed(west, "east.orders", "orders") == [11, 7], lambda: committed(west, "east.orders"))

    def own_settings() -> dict[str, str]:
        (found,) = odradek(east.bootstrap, "configs", "describe", "--topic", "west.orders", "--json").json
        return {each["name"]: each["value"] for each in found["configs"]}

    eventually(lambda: own_settings() == {"retention.ms": "7200000"}, own_settings)
    shown = odradek(east.bootstrap, "links", "describe", "west").rows
    assert ["cluster.link.prefix=west."] in shown
    assert [row[:3] for row in shown[-2:]] == [["TOPIC", "SOURCE-TOPIC", "PARTITION"], ["west.orders", "orders", "0"]]
    assert ["west", west.bootstrap, "west.", "1"] in odradek(east.bootstrap, "links", "list").rows
    odradek(east.bootstrap, "links", "pause", "west", "west.orders")
    write(west, "orders", values("west", 50, 51))
    eventually(lambda: [row["lag"] for row in rows_of(east.bootstrap, "west.orders")] == [1], "its lag is still known")
    write(west, "orders", values("west", 51, 60))
    client = AdminClient({"bootstrap.servers": west.bootstrap})
    deleted = TopicPartition("orders", 0, 58)
    client.delete_records([deleted])[deleted].result(PATIENCE_S)
    odradek(east.bootstrap, "links", "resume", "west", "west.orders")
    await_end(east, "west.orders", "west", 60)
    assert [each.value() for each in read_all(east.bootstrap, "west.orders")] == values("west", 58, 60)
    assert [row["skipped"] for row in rows_of(east.bootstrap, "west.orders")] == [8]
    said = odradek(east.bootstrap, "links", "describe", "west").out
    assert "west.orders-0: the source deleted 8 offsets before they were fetched" in said


def test_a_topic_with_a_prefix_goes_back_to_the_one_it_came_from(west: Node, east: Node) -> None:
    create_topic(west.bootstrap, "bills")
    write(west, "bills", values("shared", 0, 5))
    odradek(east.bootstrap, "links", "mirror", "west", "bills")
    await_end(east, "west.bills", "west", 5)
    odradek(east.bootstrap, "links", "failover", "west", "west.bills", "--yes")
    write(west, "bills", values("lost", 0, 2))
    write(east, "west.bills", values("new", 0, 3))
    back = odradek(west.bootstrap, "links", "failback", "east", "bills", "--yes", "--json").json
    assert [(each["topic"], each["offset"]) for each in back["partitions"]] == [("bills", 5)]
    (row,) = rows_of(west.bootstrap, "bills", "east")
    assert row["source_topic"] == "west.bills"
    write(east, "west.bills", values("more", 0, 2))
    # The end of the mirror has an offset of its own.
    await_end(west, "bills", "east", 11)
    found = [each.value() for each in read_all(west.bootstrap, "bills")]
    assert found == [*values("shared", 0, 5), *values("new", 0, 3), *values("more", 0, 2)]
    # The producers return to the first cluster: each topic is the other's mirror in turn.
    odradek(west.bootstrap, "links", "promote", "east", "bills", "--yes")
    write(west, "bills", values("again", 0, 4))
    odradek(east.bootstrap, "links", "failback", "west", "west.bills", "--yes")
    eventually(
        lambda: [each.value() for each in read_all(east.bootstrap, "west.bills")] == found + values("again", 0, 4),
        lambda: rows_of(east.bootstrap, "west.bills", "west"),
    )


def test_a_topic_with_a_prefix_that_is_another_one_now_says_so(west: Node, east: Node) -> None:
    create_topic(west.bootstrap, "passing")
    odradek(east.bootstrap, "links", "mirror", "west", "passing")
    await_end(east, "west.passing", "west", 0)
    odradek(west.bootstrap, "topics", "delete", "--topic", "passing")
    create_topic(west.bootstrap, "passing")
    eventually(lambda: [row["why"] for row in rows_of(east.bootstrap, "west.passing")] == ["recreated"])
    assert rows_of(east.bootstrap, "west.passing")[0]["reason"].startswith("passing is another topic at the source now")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"north.bootstrap.servers": "a:1", "north.cluster.link.prefix": "no/rth."}, ErrorCode.INVALID_CONFIG),
        ({"west.cluster.link.prefix": "other."}, ErrorCode.INVALID_REQUEST),
        ({"west.mirror.without": "active"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({f"west.mirror.west.{'t' * 245}": "active"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_names_that_no_mirror_can_have_are_refused(east: Node, changes: dict[str, str], code: ErrorCode) -> None:
    configs = [
        AlterableConfig(name=f"odradek.link.{key}", config_operation=0, value=text) for key, text in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    with Calls(east.port) as calls:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert ErrorCode(answer.error_code) is code, answer.error_message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "north", "--source", "a:1", "--prefix", "no/rth."), "must be 1 to 248 ASCII letters"),
        (("alter", "west", "--set", "cluster.link.prefix=other."), "The prefix of link west cannot change"),
        (("alter", "west", "--unset", "cluster.link.prefix"), "The prefix of link west cannot change"),
        (("mirror", "west", "t" * 245), "longer than the max allowed length 249"),
        (("mirror", "west", "__consumer_offsets"), "'__consumer_offsets' is internal"),
    ],
)
def test_the_command_says_in_one_line_what_no_mirror_can_have(east: Node, words: tuple[str, ...], said: str) -> None:
    refused = odradek(east.bootstrap, "links", *words, code=None)
    assert refused.code and said in refused.err
    assert refused.err.count("\n") == 1
