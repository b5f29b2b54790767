"""AlterPartitionReassignments, ListPartitionReassignments, UnregisterBroker, AssignReplicasToDirs, on one node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import assign_replicas_to_dirs_request as assign
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.support.clients.api_calls import Calls, fresh_name, name_of
from tests.support.nodes.node import Node


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


def move(calls: Calls, version: int, name: str, wanted: dict[int, list[int] | None], **fields: Any) -> dict[int, str]:
    partitions = [ReassignablePartition(partition_index=number, replicas=ids) for number, ids in wanted.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)], **fields)
    answer = calls.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert answer.error_code == 0
    (response,) = answer.responses
    return {result.partition_index: name_of(result.error_code) for result in response.partitions}


@pytest.mark.parametrize("version", range(2))
def test_moves_that_are_refused_change_nothing(calls: Calls, topic: str, version: int) -> None:
    assert move(calls, version, topic, {0: [1, 2], 1: [], 7: [1]}) == {
        0: "INVALID_REPLICA_ASSIGNMENT",
        1: "INVALID_REPLICA_ASSIGNMENT",
        7: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert move(calls, version, topic, {0: [1, 1], 1: None}) == {
        0: "INVALID_REPLICA_ASSIGNMENT",
        1: "NO_REASSIGNMENT_IN_PROGRESS",
    }
    assert move(calls, version, "no-such", {0: [1]}) == {0: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert calls.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest()).topics == []


def test_a_move_to_where_it_is_has_ended(calls: Calls, topic: str) -> None:
    assert move(calls, 1, topic, {0: [1]}, allow_replication_factor_change=False) == {0: "NONE"}
    request = ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 9])]
    )
    answer = calls.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    assert (answer.error_code, answer.topics) == (0, [])


def test_a_broker_that_is_not_registered_cannot_be_unregistered(calls: Calls) -> None:
    answer = calls.request(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=77))
    assert name_of(answer.error_code) == "BROKER_ID_NOT_REGISTERED"


def test_assign_replicas_to_dirs_needs_a_registered_broker(node: Node) -> None:
    request = assign.AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=-1, directories=[assign.DirectoryData(id=UUID(int=5))]
    )
    with Calls(node.controller_port) as controller:
        answer = controller.request(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, request)
        assert name_of(answer.error_code) == "STALE_BROKER_EPOCH"
        request.broker_id = 9
        answer = controller.request(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, request)
        assert name_of(answer.error_code) == "STALE_BROKER_EPOCH"
