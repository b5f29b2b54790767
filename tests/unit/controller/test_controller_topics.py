"""CreateTopics, CreatePartitions, DeleteTopics: each reason for a refusal, and the written records otherwise."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from tests.support.models.controller_harness import Harness, wanted

BAD_NAMES = ["", ".", "..", "a" * 250, "a/b", "a b", "nul\0", "ü", "a\n"]


@pytest.fixture
def one() -> Harness:
    harness = Harness()
    harness.brokers(1)
    return harness


def code(harness: Harness, topic: CreatableTopic) -> int:
    before = len(harness.log)
    answer = harness.create(topic)[0]
    assert answer.error_code == 0 or (len(harness.log) == before and answer.error_message)
    return int(answer.error_code)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_no_names(one: Harness, name: str) -> None:
    assert code(one, wanted(name)) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "a" * 249, "...", "A-Z_0.9"])
def test_names_at_the_limits(one: Harness, name: str) -> None:
    assert code(one, wanted(name)) == ErrorCode.NONE
    assert code(one, wanted(name)) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topic_names_that_collide_in_metrics_are_refused(one: Harness) -> None:
    assert code(one, wanted("a.b")) == 0
    assert code(one, wanted("a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    answers = one.create(wanted("c.d"), wanted("c_d"))
    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    one.do(one.machine.topics.delete(DeleteTopicsRequest(topic_names=["a.b"])))
    assert code(one, wanted("a_b")) == 0


@pytest.mark.parametrize(
    ("partitions", "factor", "expected"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (2**31 - 1, 1, ErrorCode.POLICY_VIOLATION),
        (10_001, 1, ErrorCode.POLICY_VIOLATION),
        (-1, -1, ErrorCode.NONE),
    ],
)
def test_counts(one: Harness, partitions: int, factor: int, expected: ErrorCode) -> None:
    assert code(one, wanted("t", partitions, factor)) == expected


def test_the_limit_holds_for_the_whole_request(one: Harness) -> None:
    answers = one.create(wanted("a", 6000), wanted("b", 6000), wanted("c", 4000))
    assert [answer.error_code for answer in answers] == [0, ErrorCode.POLICY_VIOLATION, 0]


def test_defaults_come_from_the_settings() -> None:
    harness = Harness(num_partitions=3, default_replication_factor=2)
    harness.brokers(1, 2)
    answer = harness.create(wanted("t", -1, -1))[0]
    assert (answer.num_partitions, answer.replication_factor) == (3, 2)
    assert answer.topic_id == harness.state.topic_ids["t"] and answer.topic_id != UUID(int=0)


def test_no_broker_or_only_fenced_ones() -> None:
    harness = Harness()
    assert code(harness, wanted("t")) == ErrorCode.INVALID_REPLICATION_FACTOR
    harness.register(1)
    assert code(harness, wanted("t")) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_fenced_broker_gets_replicas_but_is_not_in_sync() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.register(2)
    assert code(harness, wanted("t", 1, 2)) == 0
    partition = harness.partition("t")
    assert partition.replicas == (1, 2) and partition.isr == (1,) and partition.leader == 1
    assert partition.directories == (UUID(int=1001), UUID(int=1002))


def test_validate_only_writes_nothing(one: Harness) -> None:
    before = len(one.log)
    good, bad = one.create(wanted("t"), wanted(".."), validate_only=True)
    assert good.error_code == 0 and good.topic_id == UUID(int=0) and good.num_partitions == 1
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(one.log) == before


def test_one_name_twice_in_a_request(one: Harness) -> None:
    answers = one.create(wanted("t"), wanted("u"), wanted("t"))
    assert [(a.name, a.error_code) for a in answers] == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([("retention.ms", "5")], 0),
        ([("retention.ms", "many")], ErrorCode.INVALID_CONFIG),
        ([("no.such", "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "5"), ("retention.ms", "6")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_of_a_new_topic(one: Harness, configs: list[tuple[str, str | None]], expected: int) -> None:
    entries = [CreatableTopicConfig(name=name, value=value) for name, value in configs]
    assert code(one, wanted("t", configs=entries)) == expected
    if not expected:
        assert one.state.configs[(2, "t")] == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("assignments", "partitions", "factor", "expected"),
    [
        ([(0, [1, 2]), (1, [2, 1])], -1, -1, ErrorCode.NONE),
        ([(1, [1]), (0, [2])], -1, -1, ErrorCode.NONE),
        ([(0, [1])], 1, -1, ErrorCode.INVALID_REQUEST),
        ([(0, [1])], -1, 1, ErrorCode.INVALID_REQUEST),
        ([(0, [])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1, 1])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [9])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [-1])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [2])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (1, [1, 2])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (2, [1])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(-1, [1])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [3])], -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignments(
    assignments: list[tuple[int, list[int]]], partitions: int, factor: int, expected: ErrorCode
) -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.register(3)
    manual = [CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in assignments]
    assert code(harness, wanted("t", partitions, factor, assignments=manual)) == expected


def add_partitions(
    harness: Harness, name: str, count: int, *assignments: list[int], validate_only: bool = False
) -> int:
    manual = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=manual)], validate_only=validate_only
    )
    return int(harness.do(harness.machine.topics.add_partitions(request)).results[0].error_code)


def test_partitions_are_added_with_the_replication_of_the_first() -> None:
    harness = Harness()
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2])
    assert add_partitions(harness, "t", 4) == 0
    assert all(len(harness.partition("t", number).replicas) == 2 for number in range(4))
    assert add_partitions(harness, "t", 6, [3, 1], [1, 3]) == 0
    assert harness.partition("t", 5).replicas == (1, 3)


def test_partitions_that_cannot_be_added() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1], [1])
    before = len(harness.log)
    assert add_partitions(harness, "t", 2) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(harness, "t", 1) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(harness, "t", -5) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(harness, "u", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert add_partitions(harness, "t", 2**31 - 1) == ErrorCode.POLICY_VIOLATION
    assert add_partitions(harness, "t", 4, [1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(harness, "t", 3, [1, 2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(harness, "t", 3, [7]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(harness, "t", 3, validate_only=True) == 0
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)] * 2)
    twice = harness.do(harness.machine.topics.add_partitions(request)).results
    assert [result.error_code for result in twice] == [ErrorCode.INVALID_REQUEST]
    assert len(harness.log) == before


def test_no_topic_takes_the_directory_of_the_metadata_log(one: Harness) -> None:
    (answer,) = one.create(wanted("__cluster_metadata"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not one.state.topics


def test_a_topic_that_is_named_twice_is_not_deleted(one: Harness) -> None:
    unknown = one.do(one.machine.topics.delete(DeleteTopicsRequest(topic_names=["x", "x"]))).responses
    assert [answer.error_code for answer in unknown] == [ErrorCode.INVALID_REQUEST]
    one.topic("a", [1])
    by_id = DeleteTopicState(topic_id=one.state.topic_ids["a"])
    for states in ([DeleteTopicState(name="a")] * 2, [by_id, by_id], [by_id, DeleteTopicState(name="a")]):
        answers = one.do(one.machine.topics.delete(DeleteTopicsRequest(topics=states))).responses
        assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
    assert "a" in one.state.topic_ids


def test_topics_are_deleted_by_name_and_by_id(one: Harness) -> None:
    one.topic("a", [1], [1])
    one.topic("b", [1])
    first = one.state.topic_ids["a"]
    states = [
        DeleteTopicState(topic_id=first),
        DeleteTopicState(name="b"),
        DeleteTopicState(name="c"),
        DeleteTopicState(topic_id=UUID(int=12)),
        DeleteTopicState(name="a", topic_id=first),
        DeleteTopicState(),
    ]
    answers = one.do(one.machine.topics.delete(DeleteTopicsRequest(topics=states))).responses
    assert [answer.error_code for answer in answers] == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert answers[0].name == "a" and answers[1].topic_id != UUID(int=0)
    assert not one.state.topics and not one.state.partitions and not one.state.collisions


def test_deletion_can_be_disabled() -> None:
    harness = Harness(delete_topic_enable=False)
    with pytest.raises(ApiError) as caught:
        harness.do(harness.machine.topics.delete(DeleteTopicsRequest(topic_names=["a"])))
    assert caught.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_a_topic_made_again_has_another_id_and_no_old_settings(one: Harness) -> None:
    one.create(wanted("t", 3, configs=[CreatableTopicConfig(name="x", value="1")]))
    first = one.state.topic_ids["t"]
    one.do(one.machine.topics.delete(DeleteTopicsRequest(topic_names=["t"])))
    one.create(wanted("t", 1))
    assert one.state.topic_ids["t"] != first and (2, "t") not in one.state.configs
    assert len(one.state.partitions) == 1
