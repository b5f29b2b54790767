"""`odradek transactions` against a node, with an open transaction and one that hangs."""

from __future__ import annotations

import pytest

from odradek.cli import errors
from tests.support.clients.api_calls import Calls
from tests.support.clients.cli import odradek
from tests.support.clients.transactions import TransactionalProducer
from tests.support.models.exactly_once import committed_values
from tests.support.nodes.node import Node
from tests.support.waiting import eventually


@pytest.fixture
def topic(node: Node) -> str:
    with Calls(node.port) as calls:
        return calls.create_topic(2)


def test_list_and_describe(node: Node, topic: str) -> None:
    with TransactionalProducer(node.port) as producer:
        producer.init()
        producer.write(topic, b"x", partition=1)
        name = producer.transactional_id
        listed = odradek(node.bootstrap, "transactions", "list", "--state", "Ongoing", "--json").json
        mine = {"transactional_id": name, "coordinator": 1, "producer_id": producer.producer_id, "state": "Ongoing"}
        assert mine in listed
        rows = odradek(node.bootstrap, "transactions", "list", "--producer-id", producer.producer_id).rows
        assert rows[1] == [name, "1", str(producer.producer_id), "Ongoing"]
        assert odradek(node.bootstrap, "transactions", "list", "--longer-than-ms", 10**9, "--json").json == []
        matched = odradek(node.bootstrap, "transactions", "list", "--pattern", name[:-1] + ".", "--json").json
        assert matched == [mine]
        assert odradek(node.bootstrap, "transactions", "list", "--pattern", name[:-1], "--json").json == []
        bad = odradek(node.bootstrap, "transactions", "list", "--pattern", "(", code=errors.FAILED)
        assert "INVALID_REGULAR_EXPRESSION" in bad.err or "no regular expression" in bad.err
        described = odradek(node.bootstrap, "transactions", "describe", "--transactional-id", name, "--json").json
        assert described["partitions"] == [f"{topic}-1"] and described["timeout_ms"] == 60_000
        assert described["started_ms"] > 0
        text = odradek(node.bootstrap, "transactions", "describe", "--transactional-id", name).out
        assert f"partitions: {topic}-1" in text and "state: Ongoing" in text
        producer.commit()
    missing = odradek(
        node.bootstrap, "transactions", "describe", "--transactional-id", "no-such-id", code=errors.FAILED
    )
    assert "no-such-id" in missing.err
    unknown = odradek(node.bootstrap, "transactions", "list", "--state", "Nonsense", code=errors.FAILED)
    assert "Nonsense" in unknown.err


def find(node: Node, topic: str, *options: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = odradek(
        node.bootstrap, "transactions", "find-hanging", "--topic", topic, "--json", *options
    ).json
    return found


def test_a_transaction_that_hangs_is_found_and_ended(own_node: Node) -> None:
    """With verification off, a late batch of an older client opens a transaction that no producer ends."""
    own_node.stop()
    own_node.overrides["transaction.partition.verification.enable"] = "false"
    own_node.start()
    node, at_once = own_node, ("--max-transaction-timeout", 0)
    with Calls(node.port) as calls, TransactionalProducer(node.port, version=0) as producer:
        topic = calls.create_topic(2)
        producer.init()
        producer.add(topic, 0)
        producer.write(topic, b"aborted")
        assert find(node, topic, *at_once) == [], "its coordinator knows it"
        assert producer.abort() == producer.abort() == "NONE"
        assert producer.write(topic, b"late") == "NONE"
        assert find(node, topic) == [], "it may be younger than a transaction may be"
        assert find(node, topic, "--partition", 1, *at_once) == []
        (found,) = find(node, topic, *at_once)
        assert (found["partition"], found["start_offset"]) == (0, 2)
        printed = odradek(node.bootstrap, "transactions", "find-hanging", "--topic", topic, *at_once)
        assert printed.rows[1][:2] == [topic, "0"] and "abort" in printed.err
        options = ("--topic", topic, "--partition", 0, "--start-offset")
        wrong = odradek(node.bootstrap, "transactions", "abort", *options, 77, code=errors.FAILED)
        assert "no transaction is open" in wrong.err
        odradek(node.bootstrap, "transactions", "abort", *options, found["start_offset"])
        assert find(node, topic, *at_once) == []
        assert committed_values(node.bootstrap, topic, 2) == {0: [], 1: []}


def test_a_producer_is_fenced_and_its_transaction_aborted(node: Node, topic: str) -> None:
    with TransactionalProducer(node.port) as producer:
        producer.init()
        producer.write(topic, b"open")
        name = producer.transactional_id
        reported = odradek(node.bootstrap, "transactions", "terminate", "--transactional-id", name, "--json").json
        assert reported == {"terminated": name}
        described = odradek(node.bootstrap, "transactions", "describe", "--transactional-id", name, "--json").json
        assert described["state"] == "Empty"
        assert producer.commit() == "PRODUCER_FENCED"
    assert committed_values(node.bootstrap, topic, 2) == {0: [], 1: []}
    unknown = ("transactions", "terminate", "--transactional-id", "no-such-id")
    assert "no-such-id" in odradek(node.bootstrap, *unknown, code=errors.FAILED).err


def test_a_transaction_that_its_coordinator_ends_is_not_aborted(node: Node, topic: str) -> None:
    with TransactionalProducer(node.port) as producer:
        producer.init()
        for partition in (0, 1):
            producer.write(topic, b"whole", partition=partition)
        arguments = ("transactions", "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
        refused = odradek(node.bootstrap, *arguments, code=errors.FAILED)
        assert f"terminate --transactional-id {producer.transactional_id}" in refused.err
        assert producer.commit() == "NONE"
        # An end is answered before its markers are written.
        eventually(lambda: committed_values(node.bootstrap, topic, 2) == {0: [b"whole"], 1: [b"whole"]})
        producer.write(topic, b"forced")
        begins = find(node, topic, "--max-transaction-timeout", 0)
        assert begins == [], "its coordinator knows it"
        odradek(node.bootstrap, *arguments[:-1], 2, "--force")
    assert committed_values(node.bootstrap, topic, 2) == {0: [b"whole"], 1: [b"whole"]}


@pytest.mark.parametrize("where", [("--topic", "mistyped"), ("--partition", 99)])
def test_no_transaction_hangs_in_an_empty_cluster(node: Node, topic: str, where: tuple[object, ...]) -> None:
    named = where if where[0] == "--topic" else ("--topic", topic, *where)
    missing = odradek(node.bootstrap, "transactions", "find-hanging", *named, code=errors.NOT_FOUND)
    assert f"there is no {'topic mistyped' if where[0] == '--topic' else f'partition {topic}-99'}" in missing.err


def test_invalid_uses(node: Node) -> None:
    endless = odradek(
        node.bootstrap, "transactions", "find-hanging", "--max-transaction-timeout", "inf", code=errors.USAGE
    )
    assert "--max-transaction-timeout" in endless.err
    assert (
        "needs --topic"
        in odradek(node.bootstrap, "transactions", "find-hanging", "--partition", 1, code=errors.USAGE).err
    )
