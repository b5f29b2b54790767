"""The most entries of one request: 10,000 are decided, in steps; one more is refused, and nothing of it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import next_step
from odradek.controller import bounds
from odradek.controller.bounds import MAX_ENTRIES_PER_REQUEST, PARTS, check_size
from odradek.controller.client_quotas import alter_client_quotas
from odradek.controller.scram import alter_scram_credentials
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import Harness, wanted
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


@pytest.mark.parametrize("largest", [MAX_ENTRIES_PER_REQUEST, 3333])
def test_settings_of_all_new_topics_are_counted_together(harness: Harness, largest: int) -> None:
    """Each topic has few enough of them; nothing is created."""

    def request(count: int) -> CreateTopicsRequest:
        settings = [CreatableTopicConfig(name=f"x{number}", value="1") for number in range(count)]
        left = [CreatableTopicConfig(name="x", value="1")] * (MAX_ENTRIES_PER_REQUEST - count)
        return CreateTopicsRequest(
            topics=[wanted(f"n{place}", configs=each) for place, each in enumerate((settings, left, []))]
        )

    before = len(harness.log)
    steps_of(harness.machine.topics.create(request(largest)))
    too_many = request(largest)
    too_many.topics[2].configs = [CreatableTopicConfig(name="x", value="1")]
    with pytest.raises(ApiError) as caught:
        harness.do(harness.machine.topics.create(too_many))
    assert (caught.value.code, caught.value.message) == (ErrorCode.POLICY_VIOLATION, MESSAGE)
    assert len(harness.log) == before


def test_new_topics_with_many_settings_take_steps(harness: Harness) -> None:
    setting = CreatableTopicConfig(name="x", value="1")
    topics = [wanted(f"n{number}", configs=[setting] * 100) for number in range(100)]
    count, _ = steps_of(harness.machine.topics.create(CreateTopicsRequest(topics=topics)))
    assert count >= 30


def test_elections_of_all_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka counts the records: partitions whose leader stays count nothing."""
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("moved", *[[2, 1]] * 3)
    harness.topic("stays", *[[1, 2]] * 3)
    harness.beat(2, want_fence=True)
    assert [harness.partition("moved", number).leader for number in range(3)] == [1] * 3
    harness.beat(2)
    all_in_sync(harness)
    before = len(harness.log)
    everything = ElectLeadersRequest(election_type=0, topic_partitions=None)
    monkeypatch.setattr(bounds, "MAX_ENTRIES_PER_REQUEST", 2)
    with pytest.raises(ApiError) as caught:
        harness.do(harness.machine.leaders.elect_leaders(everything))
    assert (caught.value.code, caught.value.message) == (ErrorCode.POLICY_VIOLATION, MESSAGE)
    assert len(harness.log) == before
    monkeypatch.setattr(bounds, "MAX_ENTRIES_PER_REQUEST", 3)
    harness.do(harness.machine.leaders.elect_leaders(everything))
    assert [harness.partition("moved", number).leader for number in range(3)] == [2] * 3


def all_in_sync(harness: Harness) -> None:
    """Add broker 2 to the in-sync set of every partition, as their leader does when it has caught up."""
    records = [
        PartitionChangeRecord(topic_id=topic_id, partition_id=number, isr=[1, 2])
        for topic_id, number in list(harness.state.partitions)
    ]
    harness.do(Result(records, None))


class Uncopied(list[Any]):
    """Only its length may be asked for."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("copied before it is counted")


def test_lists_are_counted_before_they_are_copied() -> None:
    half = Uncopied([None] * (MAX_ENTRIES_PER_REQUEST // 2))
    more = Uncopied([*list.__iter__(half), None])
    requests: list[Callable[[Any, Any], Any]] = [
        lambda one, other: DeleteTopicsRequest(topics=one, topic_names=other),
        lambda one, other: AlterUserScramCredentialsRequest(deletions=one, upsertions=other),
    ]
    for request in requests:
        check_size(request(half, half))
        with pytest.raises(ApiError, match=MESSAGE):
            check_size(request(half, more))


def test_other_apis_have_no_such_limit() -> None:
    check_size(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (MAX_ENTRIES_PER_REQUEST + 1)))
    assert set(PARTS) == {*OPERATIONS, ApiKey.CREATE_TOPICS}
    assert all(isinstance(request(1), API[key].request) for key, _, request in BOUNDED.values())
