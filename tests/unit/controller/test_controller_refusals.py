"""A controller refuses invalid changes of directories, elections, ids and topics, and applies the valid ones beside."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ConfigError, ErrorCode
from odradek.controller import leaders, topics
from odradek.controller.brokers import MAX_PRODUCER_ID, PRODUCER_ID_BLOCK
from odradek.metadata.features import DIRECTORY_ASSIGNMENT, ELR
from odradek.protocol.messages import alter_partition_reassignments_request as moves
from odradek.protocol.messages import assign_replicas_to_dirs_request as dirs
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import Harness, wanted
from tests.unit.controller.test_controller_configs import SET, TOPIC
from tests.unit.controller.test_controller_configs import alter as set_config
from tests.unit.controller.test_controller_partitions import alter, elect, update


def with_level(level: int, *broker_ids: int) -> Harness:
    """A controller of an older metadata.version, with these brokers."""
    harness = Harness()
    harness.brokers(*broker_ids)
    harness.do(Result([FeatureLevelRecord(name="metadata.version", feature_level=level)], None))
    return harness


def move(harness: Harness, *replicas: int) -> int:
    partition = moves.ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = moves.AlterPartitionReassignmentsRequest(
        topics=[moves.ReassignableTopic(name="t", partitions=[partition])]
    )
    answer = harness.do(harness.machine.reassignments.alter(request))
    return int(answer.responses[0].partitions[0].error_code)


def assign(harness: Harness, broker_id: int, directory: UUID, *partitions: int) -> list[int]:
    """The error codes of AssignReplicasToDirs for partitions of topic `t`."""
    asked = [dirs.PartitionData(partition_index=each) for each in partitions]
    topics = [dirs.TopicData(topic_id=harness.state.topic_ids["t"], partitions=asked)]
    request = dirs.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=harness.state.brokers[broker_id].broker_epoch,
        directories=[dirs.DirectoryData(id=directory, topics=topics)],
    )
    (answer,) = harness.do(harness.machine.directories.assign(request)).directories
    assert answer.id == directory and [topic.topic_id for topic in answer.topics] == [topics[0].topic_id]
    assert [each.partition_index for each in answer.topics[0].partitions] == list(partitions)
    return [each.error_code for each in answer.topics[0].partitions]


# -- directories -------------------------------------------------------------------------------------------------------


def test_a_replica_in_a_directory_that_is_not_online_is_not_in_sync() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2], [2, 1])
    offline = UUID(int=77)
    assert assign(harness, 2, offline, 0, 1, 0) == [0, 0, ErrorCode.INVALID_REQUEST]
    for partition_id in (0, 1):
        partition = harness.partition("t", partition_id)
        assert (partition.isr, partition.leader, partition.directory(2)) == ((1,), 1, offline)


def test_a_directory_that_is_known_already_writes_nothing() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    online = UUID(int=1002)
    assert assign(harness, 2, online, 0) == [0]
    before = len(harness.log)
    assert assign(harness, 2, online, 0) == [0]
    assert len(harness.log) == before and harness.partition("t").isr == (1, 2)


@pytest.mark.parametrize("level", [DIRECTORY_ASSIGNMENT - 1, DIRECTORY_ASSIGNMENT])
def test_directories_are_assigned_from_their_metadata_version_on(level: int) -> None:
    harness = with_level(level, 1, 2)
    harness.topic("t", [1])
    assert move(harness, 2) == 0
    assert (harness.log[-1].directories is None) == (level < DIRECTORY_ASSIGNMENT)
    if level < DIRECTORY_ASSIGNMENT:
        with pytest.raises(ApiError) as caught:
            assign(harness, 1, UUID(int=1001), 0)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    else:
        assert assign(harness, 1, UUID(int=1001), 0) == [0]


# -- leaders -----------------------------------------------------------------------------------------------------------


def test_leaders_return_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "MAX_MOVES_PER_ROUND", 1)
    harness = Harness()
    harness.brokers(1, 2)
    for name in ("t", "u"):
        harness.topic(name, [1, 2])
    harness.beat(1, want_fence=True)
    harness.beat(1)
    for name in ("t", "u"):
        alter(harness, [2, 1], 2, name)
    assert [harness.partition(name).leader for name in ("t", "u")] == [2, 2]
    assert harness.do(harness.machine.leaders.balance()) is True
    assert [harness.partition(name).leader for name in ("t", "u")] == [1, 2]
    assert harness.do(harness.machine.leaders.balance()) is False
    assert [harness.partition(name).leader for name in ("t", "u")] == [1, 1]


def test_without_a_live_replica_no_election_has_a_result() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1])
    harness.beat(1, want_fence=True)
    assert elect(harness, 1, ("t", 0)) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert harness.partition("t").leader == -1


def test_a_leader_that_a_move_removes_hears_of_the_new_one() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1])
    assert move(harness, 2) == 0
    assert alter(harness, [1, 2]).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = harness.partition("t")
    assert (after.leader, after.replicas, after.isr) == (2, (2,), (2,))


def test_a_replica_whose_directory_failed_never_joins() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    assign(harness, 2, UUID(int=77), 0)
    before = len(harness.log)
    assert alter(harness, [1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert len(harness.log) == before


# -- ids, settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1])
def test_producer_ids_come_to_an_end(left: int) -> None:
    harness = Harness()
    epoch = harness.register(1)
    harness.state.next_producer_id.value = MAX_PRODUCER_ID - PRODUCER_ID_BLOCK + 1 - left
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    if left:
        answer = harness.do(harness.machine.brokers.allocate_producer_ids(request))
        assert answer.producer_id_start + answer.producer_id_len == MAX_PRODUCER_ID
    with pytest.raises(ApiError, match="Exhausted") as caught:
        harness.machine.brokers.allocate_producer_ids(request)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_value_that_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret on a controller that has no key to encrypt it with."""
    harness = Harness()
    harness.brokers(1)
    harness.topic("t", [1])

    def stored(*_: Any) -> str:
        raise ConfigError(["no key", "no cipher"])

    monkeypatch.setattr(harness.machine.configs._schema, "stored", stored)
    before = len(harness.log)
    assert set_config(harness, TOPIC, "t", ("x", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert len(harness.log) == before


def test_a_feature_needs_the_metadata_version_that_brings_it() -> None:
    harness = with_level(ELR - 1, 1)
    harness.state.features.pop("eligible.leader.replicas.version", None)
    before = len(harness.log)
    answer = update(harness, ("eligible.leader.replicas.version", 1, 1))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"needs metadata.version at level {ELR} or above" in answer.error_message
    assert len(harness.log) == before


def test_a_request_creates_so_many_topics_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MAX_PARTITIONS_PER_REQUEST", 2)
    harness = Harness()
    harness.brokers(1)
    with pytest.raises(ApiError, match="at most 2 are allowed") as caught:
        harness.create(*(wanted(name) for name in "abc"))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION and not harness.state.topic_ids
    assert [each.error_code for each in harness.create(wanted("a"), wanted("b"))] == [0, 0]


def test_of_two_topics_whose_names_collide_each_keeps_the_other_out() -> None:
    """The log of an older controller may have both topics, whose metrics have one name."""
    harness = Harness()
    harness.brokers(1)
    harness.do(
        Result([TopicRecord(name="a.b", topic_id=UUID(int=9)), TopicRecord(name="a_b", topic_id=UUID(int=10))], None)
    )
    clash = ErrorCode.INVALID_TOPIC_EXCEPTION
    for removed, code in (("a.b", clash), ("a_b", ErrorCode.NONE)):
        topic_id = harness.state.topic_ids[removed]
        harness.do(Result([RemoveTopicRecord(topic_id=topic_id)], None))
        assert harness.create(wanted("a.b", 1), validate_only=True)[0].error_code == code
