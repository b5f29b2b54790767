"""ElectLeaders on one node, where every leader is the preferred one, and moves that change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from odradek.client import reassignment
from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.connection import RequestTimeoutError, UnreachableError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock, RealNetwork
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from tests.support.clients.api_calls import Calls, fresh_name, name_of
from tests.support.nodes.node import Node

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


@pytest.fixture
def topic(calls: Calls) -> str:
    name = fresh_name()
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
    (answer,) = calls.request(ApiKey.CREATE_TOPICS, 7, request).topics
    assert answer.error_code == 0
    return name


def elect(calls: Calls, version: int, kind: int, *asked: tuple[str, list[int]]) -> dict[tuple[str, int], str]:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=name, partitions=numbers) for name, numbers in asked] or None,
    )
    answer = calls.request(ApiKey.ELECT_LEADERS, version, request)
    assert answer.error_code == 0
    return {
        (each.topic, result.partition_id): name_of(result.error_code)
        for each in answer.replica_election_results
        for result in each.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_elections_that_are_not_needed_and_unknown_partitions(calls: Calls, topic: str, version: int) -> None:
    assert elect(calls, version, PREFERRED, (topic, [0, 1, 9]), ("no-such", [0])) == {
        (topic, 0): "ELECTION_NOT_NEEDED",
        (topic, 1): "ELECTION_NOT_NEEDED",
        (topic, 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no-such", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_an_unclean_election_is_not_needed_where_a_leader_is(calls: Calls, topic: str) -> None:
    assert elect(calls, 2, UNCLEAN, (topic, [1])) == {(topic, 1): "ELECTION_NOT_NEEDED"}


def test_of_all_partitions_only_those_are_reported_that_changed(calls: Calls, topic: str) -> None:
    assert elect(calls, 2, PREFERRED) == {}


def test_a_kind_that_no_one_knows(calls: Calls, topic: str) -> None:
    request = ElectLeadersRequest(election_type=7, topic_partitions=[TopicPartitions(topic=topic, partitions=[0])])
    assert name_of(calls.request(ApiKey.ELECT_LEADERS, 2, request).error_code) == "INVALID_REQUEST"


def test_more_partitions_than_a_request_may_have(node: Node, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client divides them over requests, and has the result of each."""
    monkeypatch.setattr(reassignment, "PARTITIONS_PER_REQUEST", 2)
    asked = [(topic, number) for number in (0, 1, 7, 8, 9)]
    names = ["ELECTION_NOT_NEEDED"] * 2 + ["UNKNOWN_TOPIC_OR_PARTITION"] * 3

    async def work() -> tuple[dict[tuple[str, int], ApiError | None], dict[tuple[str, int], ApiError | None]]:
        async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(f"127.0.0.1:{node.port}")) as cluster:
            moved = await reassignment.move_replicas(cluster, {key: [1] for key in asked})
            return moved, await reassignment.elect_leaders(cluster, reassignment.PREFERRED, asked)

    moved, elected = asyncio.run(work())
    assert list(moved) == list(elected) == asked
    assert [error and error.code.name for error in moved.values()] == [None] * 2 + names[2:]
    assert [error and error.code.name for error in elected.values()] == names


def fail_call(monkeypatch: pytest.MonkeyPatch, name: str, count: int, error: Exception) -> None:
    """Fail the `count`th call of a function of the client that sends one request."""
    send: Callable[..., Awaitable[Any]] = getattr(reassignment, name)
    calls = 0

    async def sometimes(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise error
        return await send(*arguments)

    monkeypatch.setattr(reassignment, name, sometimes)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.NOT_CONTROLLER, "none"), "NOT_CONTROLLER"),
        (RequestTimeoutError("none"), "REQUEST_TIMED_OUT"),
        (UnreachableError("none"), "NETWORK_EXCEPTION"),
    ],
)
def test_a_later_request_that_fails_leaves_the_results_of_others(
    node: Node, topic: str, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    """The results of the requests before and after it are returned too: the caller knows what they have changed."""
    monkeypatch.setattr(reassignment, "PARTITIONS_PER_REQUEST", 2)
    fail_call(monkeypatch, "_move_some", 2, error)
    fail_call(monkeypatch, "_elect_some", 2, error)
    asked = [(topic, number) for number in (0, 1, 7, 8, 9)]

    async def work() -> tuple[dict[tuple[str, int], ApiError | None], dict[tuple[str, int], ApiError | None]]:
        async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(f"127.0.0.1:{node.port}")) as cluster:
            moved = await reassignment.move_replicas(cluster, {key: [1] for key in asked})
            return moved, await reassignment.elect_leaders(cluster, reassignment.PREFERRED, asked)

    moved, elected = asyncio.run(work())
    assert list(moved) == list(elected) == asked
    names = [code] * 2 + ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert [found and found.code.name for found in moved.values()] == [None] * 2 + names
    assert [found and found.code.name for found in elected.values()] == ["ELECTION_NOT_NEEDED"] * 2 + names
    assert [found and found.message for found in moved.values()][2:4] == ["none"] * 2


@pytest.mark.parametrize("error", [ApiError(ErrorCode.NOT_CONTROLLER), RequestTimeoutError("none")])
def test_the_first_request_that_fails_is_raised(
    node: Node, topic: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(reassignment, "PARTITIONS_PER_REQUEST", 1)
    fail_call(monkeypatch, "_move_some", 1, error)
    fail_call(monkeypatch, "_elect_some", 1, error)
    asked = [(topic, 0), (topic, 1)]

    async def work() -> None:
        async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(f"127.0.0.1:{node.port}")) as cluster:
            with pytest.raises(type(error)):
                await reassignment.move_replicas(cluster, {key: [1] for key in asked})
            with pytest.raises(type(error)):
                await reassignment.elect_leaders(cluster, reassignment.PREFERRED, asked)

    asyncio.run(work())
