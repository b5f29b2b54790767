"""The most entries of one request: 10,000 are decided, in steps; one more is refused, and nothing of it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import next_step
from odradek.controller.bounds import MAX_ENTRIES_PER_REQUEST, PARTS, check_size
from odradek.controller.client_quotas import alter_client_quotas
from odradek.controller.scram import alter_scram_credentials
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.models.controller_harness import Harness
from tests.support.models.large_requests import BOUNDED

TOPIC = 2
MESSAGE = "Unable to perform excessively large batch operation."
OPERATIONS: dict[ApiKey, Callable[[Harness, Any], Any]] = {
    ApiKey.ALTER_CONFIGS: lambda harness, request: harness.machine.configs.alter(request),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda harness, request: harness.machine.configs.incremental_alter(request),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda harness, request: alter_client_quotas(harness.state, request),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda harness, request: alter_scram_credentials(harness.state, request),
    ApiKey.CREATE_PARTITIONS: lambda harness, request: harness.machine.topics.add_partitions(request),
    ApiKey.DELETE_TOPICS: lambda harness, request: harness.machine.topics.delete(request),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda harness, request: harness.machine.reassignments.alter(request),
    ApiKey.ELECT_LEADERS: lambda harness, request: harness.machine.leaders.elect_leaders(request),
    ApiKey.CREATE_ACLS: lambda harness, request: harness.machine.acls.create(request),
    ApiKey.DELETE_ACLS: lambda harness, request: harness.machine.acls.delete(request),
}


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.brokers(1)
    for name in ("t", "t0", "u"):
        harness.topic(name, [1])
    return harness


def decided(harness: Harness, name: str, count: int) -> Any:
    key, _, request = BOUNDED[name]
    return OPERATIONS[key](harness, request(count))


def steps_of(steps: Any) -> tuple[int, Any]:
    count = 1
    while (result := next_step(steps)) is None:
        count += 1
    return count, result


@pytest.mark.parametrize("name", BOUNDED)
def test_one_entry_more_is_refused_as_a_whole(harness: Harness, name: str) -> None:
    before = len(harness.log)
    with pytest.raises(ApiError) as caught:
        harness.do(decided(harness, name, MAX_ENTRIES_PER_REQUEST + 1))
    assert (caught.value.code, caught.value.message) == (ErrorCode.POLICY_VIOLATION, MESSAGE)
    assert len(harness.log) == before


@pytest.mark.parametrize("name", BOUNDED)
def test_as_many_entries_as_allowed_take_steps(harness: Harness, name: str) -> None:
    count, result = steps_of(decided(harness, name, MAX_ENTRIES_PER_REQUEST))
    harness.do(result)
    assert count >= (2 if name == "AlterConfigs" else 40), "a resource is decided in one step"


def test_new_partitions_of_one_topic_take_steps(harness: Harness) -> None:
    topic = CreatePartitionsTopic(name="t", count=MAX_ENTRIES_PER_REQUEST + 1, assignments=None)
    count, result = steps_of(harness.machine.topics.add_partitions(CreatePartitionsRequest(topics=[topic])))
    assert len(result.records) == MAX_ENTRIES_PER_REQUEST and count >= 40


@pytest.mark.parametrize("name", BOUNDED)
def test_few_entries_take_one_step(harness: Harness, name: str) -> None:
    assert next_step(decided(harness, name, 5)) is not None


def test_resources_without_entries_count_too() -> None:
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    request = AlterConfigsRequest(resources=[resource] * MAX_ENTRIES_PER_REQUEST)
    check_size(request)
    request.resources.append(resource)
    with pytest.raises(ApiError, match=MESSAGE):
        check_size(request)


def test_other_apis_have_no_such_limit() -> None:
    check_size(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (MAX_ENTRIES_PER_REQUEST + 1)))
    assert set(PARTS) == set(OPERATIONS)
    assert all(isinstance(request(1), API[key].request) for key, _, request in BOUNDED.values())
