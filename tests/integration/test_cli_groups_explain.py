"""`odradek groups explain` of groups whose stock members are killed, poll too slowly, or fence one another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer

from odradek.cli import errors
from odradek.protocol.apis import ApiKey
from odradek.protocol.extras import read_timelines, timelines_field
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S

SETTINGS = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 3000,
    "group.consumer.session.timeout.ms": 3000,
}
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture(scope="module")
def quick_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("explain"), SETTINGS) as node:
        yield node


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def settings(node: Node, group: str, protocol: str, client: str, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "bootstrap.servers": node.bootstrap,
        "group.id": group,
        "client.id": client,
        "group.protocol": protocol,
    }
    if protocol == "classic":
        base |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}
    return base | {key.replace("_", "."): value for key, value in more.items()}


def member(node: Node, group: str, topic: str, protocol: str, client: str, **more: Any) -> Consumer:
    consumer = Consumer(settings(node, group, protocol, client, **more))
    consumer.subscribe([topic])
    return consumer


def explained(node: Node, group: str) -> dict[str, Any]:
    found: dict[str, Any] = odradek(node.bootstrap, "groups", "explain", group, "--json").json
    return found


def until(reached: Callable[[], Any], polled: list[Consumer]) -> Any:
    """The result of `reached` once it has one, looked for rarely, while consumers are polled."""
    deadline = time.monotonic() + PATIENCE_S
    looked, found = 0.0, None
    while True:
        for consumer in polled:
            consumer.poll(0.05)
        if time.monotonic() - looked > 1.0:
            if found := reached():
                return found
            looked = time.monotonic()
        elif not polled:
            time.sleep(0.2)
        assert time.monotonic() < deadline, found


def events(found: dict[str, Any], kind: str, client: str = "") -> list[dict[str, Any]]:
    return [each for each in found["events"] if each["kind"] == kind and client in ("", each["client_id"])]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_is_killed_times_out(quick_node: Node, closing: ExitStack, protocol: str) -> None:
    group = topic = f"killed-{protocol}"
    create_topic(quick_node.bootstrap, topic, 4)
    stays = member(quick_node, group, topic, protocol, "stays")
    closing.callback(stays.close)
    script = "import sys, json; from confluent_kafka import Consumer; c = Consumer(json.loads(sys.argv[1])); "
    script += "c.subscribe([sys.argv[2]])\nwhile True: c.poll(0.1)"
    config = json.dumps(settings(quick_node, group, protocol, "victim"))
    process = subprocess.Popen([sys.executable, "-c", script, config, topic])
    try:
        until(lambda: len(stays.assignment()) == 2, [stays])
    finally:
        process.kill()
        process.wait()
    until(lambda: len(stays.assignment()) == 4, [stays])
    found = explained(quick_node, group)
    (removed,) = events(found, "removed", "victim")
    assert removed["client_host"] == "/127.0.0.1"
    assert "session" in removed["reason"]
    assert events(found, "joined", "victim") and events(found, "rebalance")
    last = events(found, "assigned")[-1]
    assert last["unowned_ms"] > 0, "its partitions had no owner for a while"
    assert any("was killed, hung, or lost its network" in line and "victim" in line for line in found["advice"])
    shown = odradek(quick_node.bootstrap, "groups", "explain", group)
    assert shown.rows[0][:3] == ["TIME", "EVENT", "GENERATION"] and "victim" in shown.out
    assert f"group {group}: {protocol}, Stable, 1 member" in shown.err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_polls_too_slowly_goes_and_comes_back(
    quick_node: Node, closing: ExitStack, protocol: str
) -> None:
    group = topic = f"slow-{protocol}"
    create_topic(quick_node.bootstrap, topic, 2)
    slow = member(quick_node, group, topic, protocol, "slow", max_poll_interval_ms=3000)
    closing.callback(slow.close)
    until(lambda: len(slow.assignment()) == 2, [slow])
    # librdkafka says goodbye under the classic protocol; under the newer one it only stops sending heartbeats.
    gone = "left" if protocol == "classic" else "removed"
    slow.poll(4.0)
    until(lambda: events(explained(quick_node, group), gone, "slow"), [])  # no member polls
    until(lambda: len(events(explained(quick_node, group), "joined", "slow")) >= 2, [slow])
    found = explained(quick_node, group)
    assert any("did not poll in time" in line and "max.poll.interval.ms" in line for line in found["advice"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_processes_with_one_instance_id(quick_node: Node, closing: ExitStack, protocol: str) -> None:
    group = topic = f"twins-{protocol}"
    create_topic(quick_node.bootstrap, topic, 2)
    first = member(quick_node, group, topic, protocol, "first", group_instance_id="twin")
    closing.callback(first.close)
    until(lambda: len(first.assignment()) == 2, [first])
    second = member(quick_node, group, topic, protocol, "second", group_instance_id="twin")
    closing.callback(second.close)
    kind = "fenced" if protocol == "classic" else "refused"
    until(lambda: events(explained(quick_node, group), kind), [first, second])
    found = explained(quick_node, group)
    event = events(found, kind)[-1]
    assert (event["instance_id"], event["client_host"]) == ("twin", "/127.0.0.1")
    assert event["client_id"] == ("first" if protocol == "classic" else "second"), "who was turned away"
    assert any("twin" in line and "an id of its own" in line for line in found["advice"])


def test_unknown_groups_and_members_are_reported(quick_node: Node) -> None:
    gone = odradek(quick_node.bootstrap, "groups", "explain", "unknown", code=errors.NOT_FOUND)
    assert "GROUP_ID_NOT_FOUND" in gone.err


def test_only_requests_with_the_tag_get_the_field(quick_node: Node) -> None:
    with Wire(quick_node.port) as wire:
        for version in range(7):
            plain = wire.request(ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=["any"]))
            assert not plain.unknown_tagged_fields
            if version >= 5:
                asked = DescribeGroupsRequest(groups=["any", "any"], unknown_tagged_fields=[timelines_field()])
                assert read_timelines(wire.request(ApiKey.DESCRIBE_GROUPS, version, asked)) == []
