"""What the settings of links do to topics: which become mirrors, the floor of leader epochs, the end of a mirror."""

from __future__ import annotations

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.settings.links import MAX_EPOCH
from tests.support.models.controller_harness import Harness

SET, DELETE = 0, 1
BROKER = 4
ID = "00000000-0000-0000-0000-000000000007"


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.brokers(1)
    harness.topic("own", [1])
    assert alter(harness, ("bootstrap.servers", "a:9092"), ("mirror.t", "active"), ("source.id.t", ID)) == 0
    return harness


def alter(harness: Harness, *changes: tuple[str, str | None]) -> int:
    entries = [
        AlterableConfig(name=f"odradek.link.west.{key}", config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes
    ]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return int(harness.do(harness.machine.configs.incremental_alter(request)).responses[0].error_code)


def epoch_of(harness: Harness, topic: str) -> tuple[int, int]:
    """(leader epoch, partition epoch) of its partition 0."""
    partition = harness.state.partitions[harness.state.topic_ids[topic], 0]
    return partition.leader_epoch, partition.partition_epoch


def test_a_topic_that_exists_becomes_no_mirror(harness: Harness) -> None:
    assert alter(harness, ("mirror.own", "active")) == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata", "."])
def test_what_the_cluster_itself_writes_becomes_no_mirror(harness: Harness, topic: str) -> None:
    assert alter(harness, (f"mirror.{topic}", "active")) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_mirror_that_exists_is_paused_and_stays_one(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("mirror.t", "paused")) == 0
    assert alter(harness, ("mirror.t", None), ("source.id.t", None)) == ErrorCode.INVALID_REQUEST


def test_a_mirror_that_was_never_made_is_given_up(harness: Harness) -> None:
    assert alter(harness, ("mirror.t", None), ("source.id.t", None)) == 0


def test_leader_epochs_are_raised_to_the_floor_and_never_lowered(harness: Harness) -> None:
    harness.topic("t", [1])
    assert epoch_of(harness, "t") == (0, 0)
    assert alter(harness, ("leader.epoch.t", "9")) == 0
    assert epoch_of(harness, "t") == (9, 1)
    assert alter(harness, ("leader.epoch.t", "4")) == 0
    assert epoch_of(harness, "t") == (9, 1)
    assert epoch_of(harness, "own") == (0, 0)


def test_a_mirror_is_made_at_the_floor(harness: Harness) -> None:
    assert alter(harness, ("leader.epoch.t", "12")) == 0
    harness.topic("t", [1])
    assert epoch_of(harness, "t") == (12, 0)


def test_the_settings_of_a_mirror_go_with_its_topic(harness: Harness) -> None:
    harness.topic("t", [1])
    harness.do(harness.machine.topics.delete(DeleteTopicsRequest(topic_names=["t"])))
    left = {key for key in harness.state.configs[(BROKER, "")] if key.startswith("odradek.link.")}
    assert left == {"odradek.link.west.bootstrap.servers"}
    assert "t" not in harness.state.topic_ids


def settings_of(harness: Harness) -> dict[str, str]:
    return dict(harness.state.configs[(BROKER, "")])


def test_a_promoted_mirror_gets_one_epoch_above_all(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("leader.epoch.t", "9")) == 0
    assert alter(harness, ("mirror.t", "promoted")) == 0
    assert epoch_of(harness, "t") == (10, 2)
    assert settings_of(harness)["odradek.link.west.leader.epoch.t"] == "10"
    assert epoch_of(harness, "own") == (0, 0)


def test_new_partitions_of_a_promoted_topic_begin_in_its_epochs(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("mirror.t", "promoted")) == 0
    # Its link may go: the settings that say whose records these are stay.
    assert alter(harness, ("bootstrap.servers", None)) == 0
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)])
    harness.do(harness.machine.topics.add_partitions(request))
    assert harness.state.partitions[harness.state.topic_ids["t"], 1].leader_epoch == 1


@pytest.mark.parametrize(
    "change", [("mirror.t", "active"), ("mirror.t", None), ("leader.epoch.t", "50"), ("leader.epoch.t", None)]
)
def test_a_promotion_is_for_good(harness: Harness, change: tuple[str, str | None]) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("mirror.t", "promoted")) == 0
    before = settings_of(harness)
    assert alter(harness, change) == ErrorCode.INVALID_REQUEST
    assert settings_of(harness) == before


def test_what_is_not_promoted(harness: Harness) -> None:
    assert alter(harness, ("mirror.t", "promoted")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(harness, ("mirror.own", "promoted")) == ErrorCode.TOPIC_ALREADY_EXISTS
    harness.topic("t", [1])
    assert alter(harness, ("mirror.t", "promoted"), ("leader.epoch.t", "3")) == ErrorCode.INVALID_REQUEST


def test_a_mirror_at_the_last_epoch_is_not_promoted(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("leader.epoch.t", str(MAX_EPOCH))) == 0
    assert alter(harness, ("mirror.t", "promoted")) == ErrorCode.INVALID_REQUEST
    assert settings_of(harness)["odradek.link.west.mirror.t"] == "active"
    assert alter(harness, ("mirror.t", "paused")) == 0, "settings can be changed as before"
