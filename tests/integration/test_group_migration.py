"""Stock consumers of both protocols in one group, rolled either way under load, with the node killed in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState

from tests.support.clients.confluent import admin
from tests.support.clients.group_fleet import PARTITIONS, SESSION_S, SETTINGS, Fleet, commit_all, committed, drained
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def quick_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("migration"), SETTINGS) as node:
        yield node


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.slow), "cooperative-sticky"])
def test_a_group_is_rolled_to_the_consumer_protocol_and_back(
    quick_node: Node, closing: ExitStack, strategy: str
) -> None:
    fleet = Fleet(quick_node, f"rolled-{strategy}", strategy)
    closing.callback(fleet.close)
    for _ in range(2):
        fleet.add("classic")
    fleet.until(fleet.shared, "two classic members share")
    assert fleet.group_type() == "CLASSIC"
    for protocol, kind in (("consumer", "CONSUMER"), ("classic", "CLASSIC")):
        for _ in range(2):
            old = fleet.members[0]
            fleet.add(protocol)
            fleet.until(fleet.shared, f"three members share, one of them new ({protocol})")
            assert fleet.group_type() == "CONSUMER", "while there is one of the consumer protocol"
            commit_all(fleet)
            before = committed(fleet)
            fleet.stop(old)
            fleet.until(fleet.shared, f"one old member stopped ({protocol})")
            pairs = zip(before, committed(fleet), strict=True)
            assert all(earlier <= later for earlier, later in pairs), "what was committed counts on"
        assert fleet.group_type() == kind
    drained(fleet)
    assert fleet.longest_s < SESSION_S, "a partition had no owner until its member was given up on"
    assert all(not member.errors for member in fleet.members), [member.errors for member in fleet.members]
    deadline = time.monotonic() + PATIENCE_S
    while sum(committed(fleet)) != fleet.sent:
        assert time.monotonic() < deadline, (committed(fleet), fleet.sent)
        for member in fleet.members:
            member.poll(fleet.read)
        commit_all(fleet)


def test_a_node_that_is_killed_in_the_middle_knows_both_kinds_of_members(tmp_path: Path, closing: ExitStack) -> None:
    node = closing.enter_context(Node(tmp_path, SETTINGS))
    fleet = Fleet(node, "killed", "cooperative-sticky")
    closing.callback(fleet.close)  # before the node stops: librdkafka may wait for ever for one that is gone
    for protocol in ("classic", "classic", "consumer"):
        fleet.add(protocol)
        fleet.until(fleet.shared, f"one more of {protocol}")
    before = [sorted(member.owned) for member in fleet.members]
    node.kill()
    node.start()
    seen = len(fleet.read)
    fleet.until(lambda: len(fleet.read) > seen + 10 * PARTITIONS and fleet.shared(), "they read on")
    assert [sorted(member.owned) for member in fleet.members] == before, "no member lost its place"
    assert fleet.group_type() == "CONSUMER"
    # The last of the consumer protocol goes, and the node with it: the group goes on as a classic one.
    fleet.stop(fleet.members[2])
    node.kill()
    node.start()
    fleet.until(fleet.shared, "the classic members take over what it had")
    assert fleet.group_type() == "CLASSIC"
    drained(fleet)


def test_static_members_are_rolled_in_place(quick_node: Node, closing: ExitStack) -> None:
    fleet = Fleet(quick_node, "static", "range")
    closing.callback(fleet.close)
    for name in ("i0", "i1"):
        fleet.add("classic", name)
    fleet.until(fleet.shared, "two static classic members share")
    untouched = fleet.members[1]
    kept, was = set(untouched.owned), set(fleet.members[0].owned)
    for protocol, kind in (("consumer", "CONSUMER"), ("classic", "CLASSIC")):
        fleet.stop(fleet.members[0])
        fleet.members.insert(0, fleet.add(protocol, "i0"))
        fleet.members.pop()
        fleet.until(fleet.shared, f"it is back as {protocol}")
        assert (fleet.members[0].owned, untouched.owned) == (was, kept), "each has what it had"
        assert fleet.group_type() == kind
    drained(fleet)


def test_a_consumer_joins_a_classic_group_in_its_first_rebalance(tmp_path: Path, closing: ExitStack) -> None:
    """The group has no generation then; the delay of the rebalance here is longer than the session of its member."""
    delay = {"group.initial.rebalance.delay.ms": int(SESSION_S * 2000)}
    node = closing.enter_context(Node(tmp_path, SETTINGS | delay))
    fleet = Fleet(node, "first-rebalance", "range")
    closing.callback(fleet.close)
    client = admin(node.bootstrap)

    def is_waiting() -> bool:
        group = client.describe_consumer_groups([fleet.topic])[fleet.topic].result(timeout=PATIENCE_S)
        return group.state is ConsumerGroupState.PREPARING_REBALANCING and len(group.members) == 1

    old = fleet.add("classic")
    fleet.until(is_waiting, "a classic member waits for others")
    new = fleet.add("consumer")
    fleet.until(fleet.shared, "both share at once")
    assert fleet.group_type() == "CONSUMER"
    fleet.stop(new)
    fleet.until(fleet.shared, "the classic one has everything")
    assert fleet.group_type() == "CLASSIC"
    drained(fleet)
    # Members that waited for the first generation join again, as on Kafka; librdkafka reports it as an error.
    assert [each for each in old.errors if "REBALANCE_IN_PROGRESS" not in each] == new.errors == []
