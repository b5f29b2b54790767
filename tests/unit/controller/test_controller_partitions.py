"""AlterPartition, ElectLeaders, UpdateFeatures."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.state import ControllerState
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages import alter_partition_request as request_messages
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline
from tests.support.models.controller_harness import Harness, wanted


@pytest.fixture
def three() -> Harness:
    harness = Harness()
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2, 3])
    return harness


def alter(harness: Harness, isr: list[int], broker_id: int = 1, name: str = "t", **changes: Any) -> Any:
    partition = harness.partition(name)
    epochs = changes.pop("epochs", {})
    fields = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": [
            request_messages.BrokerState(broker_id=number, broker_epoch=epochs.get(number, -1)) for number in isr
        ],
        **changes,
    }
    topic = request_messages.TopicData(
        topic_id=harness.state.topic_ids[name], partitions=[request_messages.PartitionData(**fields)]
    )
    request = request_messages.AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=harness.state.brokers[broker_id].broker_epoch, topics=[topic]
    )
    return harness.do(harness.machine.partitions.alter_partition(request)).topics[0].partitions[0]


def test_shrinking_and_growing_the_in_sync_set(three: Harness) -> None:
    answer = alter(three, [1, 2])
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [1, 2], 0, 1)
    assert three.partition("t").isr == (1, 2) and three.partition("t").elr == ()
    assert alter(three, [1, 2, 3]).isr == [1, 2, 3]


def test_leaving_below_min_insync_makes_eligible() -> None:
    harness = Harness(min_insync_replicas=2)
    harness.state.configs.pop((4, ""))
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2, 3])
    alter(harness, [1])
    assert set(harness.partition("t").elr) == {2, 3}
    alter(harness, [1, 2])
    assert harness.partition("t").elr == ()


@pytest.mark.parametrize(
    ("isr", "changes", "expected"),
    [
        ([1], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1], {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1], {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 9], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"epochs": {2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1], {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reports_that_are_refused(three: Harness, isr: list[int], changes: dict[str, Any], expected: ErrorCode) -> None:
    before = len(three.log)
    assert alter(three, isr, **changes).error_code == expected
    assert len(three.log) == before


def test_a_report_of_a_topic_that_does_not_exist_is_refused(three: Harness) -> None:
    before = len(three.log)
    for topic_id, code in ((UUID(int=99), ErrorCode.UNKNOWN_TOPIC_ID), (three.state.topic_ids["t"], ErrorCode.NONE)):
        asked = request_messages.PartitionData(
            partition_index=0,
            leader_epoch=0,
            partition_epoch=0,
            new_isr_with_epochs=[request_messages.BrokerState(broker_id=number) for number in (1, 2, 3)],
        )
        request = request_messages.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=three.state.brokers[1].broker_epoch,
            topics=[request_messages.TopicData(topic_id=topic_id, partitions=[asked])],
        )
        (answer,) = three.do(three.machine.partitions.alter_partition(request)).topics
        assert (answer.topic_id, answer.partitions[0].error_code) == (topic_id, code)
    assert len(three.log) == before, "the set is what it was"


def test_a_fenced_or_stopping_replica_never_joins(three: Harness) -> None:
    three.beat(2, want_fence=True)
    three.beat(3, want_shut_down=True)
    assert three.partition("t").isr == (1,)
    assert alter(three, [1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter(three, [1, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_of_an_old_epoch_alters_nothing(three: Harness) -> None:
    request = request_messages.AlterPartitionRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(ApiError) as caught:
        three.machine.partitions.alter_partition(request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def elect(harness: Harness, kind: int, *partitions: tuple[str, int]) -> list[int]:
    asked = [TopicPartitions(topic=topic, partitions=[number]) for topic, number in partitions] or None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    answer = harness.do(harness.machine.leaders.elect_leaders(request))
    return [result.error_code for topic in answer.replica_election_results for result in topic.partition_result]


def test_the_preferred_leader_is_elected_when_it_is_back(three: Harness) -> None:
    assert elect(three, 0, ("t", 0)) == [ErrorCode.ELECTION_NOT_NEEDED]
    three.beat(1, want_fence=True)
    assert three.partition("t").leader == 2
    three.beat(1)
    assert elect(three, 0, ("t", 0)) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    alter(three, [2, 3, 1], 2)
    assert elect(three, 0) == [0] and three.partition("t").leader == 1
    assert elect(three, 0) == []


def test_leaders_are_rebalanced_to_preferred_replicas_in_sync(three: Harness) -> None:
    three.topic("u", [3, 2, 1])
    three.beat(1, want_fence=True)
    three.beat(1)
    assert three.do(three.machine.leaders.balance()) is False
    assert three.partition("t").leader == 2, "the preferred leader is back, and lacks what was written meanwhile"
    alter(three, [2, 3, 1], 2)
    before = three.partition("u")
    assert three.do(three.machine.leaders.balance()) is False
    assert three.partition("t").leader == 1
    assert three.partition("u") == before, "it was led as it should be"


def test_elections_of_what_does_not_exist(three: Harness) -> None:
    assert elect(three, 0, ("t", 9), ("u", 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    with pytest.raises(ApiError):
        three.do(three.machine.leaders.elect_leaders(ElectLeadersRequest(election_type=7)))


def test_an_unclean_election_is_asked_for_and_marks_recovery() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    alter(harness, [1])
    harness.beat(1, want_fence=True)
    down = harness.partition("t")
    assert down.leader == -1 and down.elr == (1,)
    assert elect(harness, 1, ("t", 0)) == [0]
    after = harness.partition("t")
    assert (after.leader, after.isr, after.elr, after.leader_recovery_state) == (2, (2,), (), 1)
    assert elect(harness, 1, ("t", 0)) == [ErrorCode.ELECTION_NOT_NEEDED]
    answer = alter(harness, [2], 2, leader_recovery_state=0)
    assert answer.error_code == 0 and harness.partition("t").leader_recovery_state == 0


def test_unclean_elections_happen_where_the_topic_allows_them() -> None:
    harness = Harness(unclean_leader_election_enable=True)
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    alter(harness, [1])
    harness.beat(1, want_fence=True)
    assert harness.partition("t").leader == 2 and harness.partition("t").leader_recovery_state == 1


def update(harness: Harness, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return harness.do(harness.machine.features.update(request, version))


def test_features_go_up_and_down() -> None:
    harness = Harness()
    harness.brokers(1)
    assert update(harness, ("metadata.version", 31, 1)).error_code == 0
    assert harness.state.features["metadata.version"] == 31
    assert update(harness, ("group.version", 0, 2)).error_code == 0
    assert "group.version" not in harness.state.features
    assert update(harness, ("group.version", 1, 1), validate_only=True).error_code == 0
    assert "group.version" not in harness.state.features
    before = len(harness.log)
    assert update(harness, ("kraft.version", 1, 1)).error_code == 0
    assert len(harness.log) == before, "the quorum itself stores it"


def test_features_that_kafka_finalized_go_down_but_no_further_up() -> None:
    harness = Harness()
    harness.brokers(1)
    assert update(harness, ("share.version", 1, 1)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    harness.do(Result([FeatureLevelRecord(name="share.version", feature_level=1)], None))
    assert update(harness, ("share.version", 2, 1)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(harness, ("share.version", 1, 1)).error_code == 0
    assert update(harness, ("share.version", 0, 2)).error_code == 0
    assert update(harness, ("share.version", 1, 1)).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    "change",
    [
        ("metadata.version", 29, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 29, 3),
        ("metadata.version", 32, 1),
        ("metadata.version", 34, 1),
        ("streams.version", 1, 1),
        ("metadata.version", 6, 3),
        ("metadata.version", 33, 2),
        ("group.version", 2, 1),
        ("group.version", -1, 2),
        ("group.version", 0, 1),
        ("group.version", 0, 9),
        ("no.such", 1, 1),
        ("kraft.version", 2, 1),
    ],
)
def test_feature_updates_that_are_refused(change: tuple[str, int, int]) -> None:
    harness = Harness()
    harness.brokers(1)
    before = len(harness.log)
    answer = update(harness, change)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and answer.error_message
    assert len(harness.log) == before
    with_another = update(harness, ("share.version", 0, 2), change, version=1)
    assert (with_another.error_code, with_another.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert len(harness.log) == before, "all of a request or nothing"
    each = update(harness, ("share.version", 0, 2), version=1)
    assert [(result.feature, result.error_code) for result in each.results] == [("share.version", 0)]


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_and_the_rest_of_the_log_equal_the_whole_log(seed: int) -> None:
    chance = random.Random(seed)
    harness = Harness(seed)
    harness.brokers(1, 2, 3)
    for number in range(60):
        verb = chance.randrange(6)
        if verb < 2:
            harness.create(wanted(f"t{number}", chance.randrange(1, 4), chance.randrange(1, 3)))
        elif verb == 2 and harness.state.topics:
            name = chance.choice(list(harness.state.topic_ids))
            harness.do(harness.machine.topics.delete(DeleteTopicsRequest(topic_names=[name])))
        elif verb == 3:
            harness.beat(chance.choice([1, 2, 3]), want_fence=chance.random() < 0.5)
        elif verb == 4:
            harness.register(chance.choice([1, 2, 3]), number)
        else:
            elect(harness, 0)
    cut = chance.randrange(len(harness.log))
    delta = MetadataDelta(MetadataImage())
    for record in harness.log[:cut]:
        delta.replay(record)
    state = ControllerState(Timeline())
    for record in [*delta.apply(cut - 1, 1).records(), *harness.log[cut:]]:
        state.replay(record, 0)
    for table in ("features", "brokers", "topics", "topic_ids", "partitions", "configs"):
        assert dict(getattr(state, table)) == dict(getattr(harness.state, table)), table
    assert {key: set(names) for key, names in state.collisions.items()} == {
        key: set(names) for key, names in harness.state.collisions.items()
    }
    image = MetadataDelta(MetadataImage())
    for record in harness.log:
        image.replay(record)
    assert {name: topic.topic_id for name, topic in image.apply(0, 0).topics_by_name.items()} == dict(state.topic_ids)
    assert replace(image.apply(0, 0)).brokers == dict(state.brokers)
