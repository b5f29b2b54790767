"""The settings of links decide which topics become mirrors, the floor of their leader epochs, and a mirror's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.common.errors import ErrorCode
from odradek.controller.mirrors import first_leader_epoch
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.settings.links import MAX_EPOCH, begun_cuts, mirror_key, other_source, own_from, promotions_of
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
def test_an_internal_topic_cannot_become_a_mirror(harness: Harness, topic: str) -> None:
    assert alter(harness, (f"mirror.{topic}", "active")) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_prefix_of_a_link_is_that_of_its_creation(harness: Harness) -> None:
    assert alter(harness, ("cluster.link.prefix", "west.")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, ("mirror.t", None), ("source.id.t", None)) == 0
    gone = ("bootstrap.servers", None), ("cluster.link.prefix", None)
    created = ("bootstrap.servers", "a:9092"), ("cluster.link.prefix", "west.")
    assert alter(harness, gone[0]) == 0
    before = settings_of(harness)
    assert alter(harness, *created) == 0
    assert alter(harness, ("bootstrap.servers", "b:9092"), created[1]) == 0, "it is as it was"
    for change in (("cluster.link.prefix", "east."), gone[1]):
        assert alter(harness, change) == ErrorCode.INVALID_REQUEST
        assert alter(harness, created[0], change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, *gone) == 0
    assert settings_of(harness) == before


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("orders", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("west.", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("west.__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("west." + "t" * 245, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("west." + "t" * 244, ErrorCode.NONE),
    ],
)
def test_names_of_mirrors_with_a_prefix(harness: Harness, topic: str, code: ErrorCode) -> None:
    assert alter(harness, ("mirror.t", None), ("source.id.t", None)) == 0
    assert alter(harness, ("bootstrap.servers", None)) == 0
    assert alter(harness, ("bootstrap.servers", "a:9092"), ("cluster.link.prefix", "west.")) == 0
    assert alter(harness, (f"mirror.{topic}", "active")) == code


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


def test_a_floor_whose_change_was_undone_is_not_kept(harness: Harness) -> None:
    """The log refused the change, and the timeline took it back."""
    assert alter(harness, ("leader.epoch.t", "3")) == 0
    harness.timeline.mark(0)
    assert alter(harness, ("leader.epoch.t", "9")) == 0
    assert first_leader_epoch(harness.state, "t") == 9
    harness.timeline.revert_to(0)
    assert first_leader_epoch(harness.state, "t") == 3


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


def test_promotions_that_are_refused(harness: Harness) -> None:
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


def failback(harness: Harness, topic: str, *more: tuple[str, str | None]) -> int:
    changes = (f"mirror.{topic}", "failback"), (f"agreed.below.{topic}", "9"), (f"source.id.{topic}", ID)
    return alter(harness, *changes, *more)


def test_a_topic_that_exists_is_failed_back_at_one_epoch_above_all(harness: Harness) -> None:
    assert failback(harness, "own") == 0
    assert epoch_of(harness, "own") == (1, 1)
    assert settings_of(harness)["odradek.link.west.leader.epoch.own"] == "1"


FAILBACK_OF_OWN = [("mirror.own", "failback"), ("agreed.below.own", "9"), ("source.id.own", ID)]


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("own", [("mirror.own", "failback"), ("source.id.own", ID)], ErrorCode.INVALID_REQUEST),
        ("own", [("mirror.own", "failback"), ("agreed.below.own", "9")], ErrorCode.INVALID_REQUEST),
        ("own", [("agreed.below.own", "9")], ErrorCode.INVALID_REQUEST),
        ("own", [*FAILBACK_OF_OWN, ("leader.epoch.own", "3")], ErrorCode.INVALID_REQUEST),
        ("own", [*FAILBACK_OF_OWN, ("own.from.own", "3")], ErrorCode.INVALID_REQUEST),
        ("t", [("mirror.t", "failback"), ("agreed.below.t", "9")], ErrorCode.INVALID_REQUEST),
        ("t", [("agreed.below.t", "9")], ErrorCode.INVALID_REQUEST),
        ("t", [("cut.0.t", "9")], ErrorCode.INVALID_REQUEST),
        ("t", [("source.topic.t", "u")], ErrorCode.INVALID_REQUEST),
        ("no", [("mirror.no", "failback"), ("agreed.below.no", "9"), ("source.id.no", ID)], None),
    ],
)
def test_failbacks_that_are_refused(
    harness: Harness, topic: str, changes: list[tuple[str, str]], code: ErrorCode | None
) -> None:
    harness.topic("t", [1])
    before = settings_of(harness)
    assert alter(harness, *changes) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is None else code), topic
    assert settings_of(harness) == before


def test_a_topic_is_a_mirror_once_all_its_partitions_are_cut(harness: Harness) -> None:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="own", count=2, assignments=None)])
    harness.do(harness.machine.topics.add_partitions(request))
    assert failback(harness, "own") == 0
    for state in ("active", "paused"):
        assert alter(harness, ("mirror.own", state)) == ErrorCode.INVALID_REQUEST
    led = epoch_of(harness, "own")[0]
    assert alter(harness, ("cut.2.own", f"5@{led}")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(harness, ("cut.0.own", "5")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, ("cut.0.own", f"5@{led}")) == 0
    assert alter(harness, ("mirror.own", "active")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, ("cut.1.own", f"7@{led}")) == 0
    assert alter(harness, ("mirror.own", "active")) == 0
    of_topic = {key.removeprefix("odradek.link.west.") for key in settings_of(harness) if key.endswith(".own")}
    assert of_topic == {"mirror.own", "source.id.own", "leader.epoch.own", "agreed.below.own"}


def test_own_records_stay_so_where_a_failback_is_given_up(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("leader.epoch.t", "9")) == 0
    assert alter(harness, ("mirror.t", "promoted")) == 0
    assert (failback(harness, "t"), failback(harness, "own")) == (0, 0)
    assert own_from(settings_of(harness)) == {"t": 10, "own": 0}
    assert alter(harness, ("own.from.t", "3")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, ("begun.0.t", "3")) == ErrorCode.FENCED_LEADER_EPOCH
    assert alter(harness, ("begun.0.t", str(epoch_of(harness, "t")[0]))) == 0
    for topic in ("t", "own"):
        assert alter(harness, (f"mirror.{topic}", "promoted")) == 0
        assert begun_cuts(settings_of(harness)) == {("t", 0)}, "its leaders are to know"
    assert alter(harness, ("begun.0.t", str(epoch_of(harness, "t")[0]))) == ErrorCode.INVALID_REQUEST
    for topic in ("t", "own"):
        assert failback(harness, topic) == 0
    assert begun_cuts(settings_of(harness)) == frozenset()
    assert own_from(settings_of(harness)) == {"t": 10, "own": 0}, "given up, and begun again"


def test_a_promoted_topic_is_failed_back_by_another_link_or_the_same(harness: Harness) -> None:
    harness.topic("t", [1])
    assert alter(harness, ("leader.epoch.t", "9")) == 0
    assert alter(harness, ("mirror.t", "promoted")) == 0
    assert failback(harness, "t") == 0
    assert epoch_of(harness, "t") == (11, 3)
    # Its source is gone for good: it goes on as a topic, with what it has.
    assert alter(harness, ("cut.0.t", "5@11")) == 0
    assert alter(harness, ("mirror.t", "promoted")) == 0
    assert epoch_of(harness, "t") == (12, 4)
    assert not [key for key in settings_of(harness) if ".cut." in key]
    (known,) = promotions_of(settings_of(harness)).values()
    assert known.source_id is None, "it has records below epoch 12 that its source never had: no failback to it"


@pytest.mark.parametrize("is_given_up", [True, False])
def test_the_name_at_the_source_stays_as_long_as_it_is_the_source(harness: Harness, *, is_given_up: bool) -> None:
    assert failback(harness, "own", ("source.topic.own", "west.own")) == 0
    assert alter(harness, ("cut.0.own", f"5@{epoch_of(harness, 'own')[0]}")) == 0
    assert alter(harness, ("mirror.own", "promoted" if is_given_up else "active")) == 0
    known = settings_of(harness).get("odradek.link.west.source.topic.own")
    assert known == (None if is_given_up else "west.own")


def test_a_topic_is_not_failed_back_to_two_sources_in_turn(harness: Harness) -> None:
    """Both sources may have used one leader epoch for elections of their own: their records would be mixed."""
    assert failback(harness, "own") == 0
    led = epoch_of(harness, "own")[0]
    assert alter(harness, ("cut.0.own", f"5@{led}")) == 0
    assert alter(harness, ("mirror.own", "active")) == 0
    assert alter(harness, ("mirror.own", "promoted")) == 0
    third = ("mirror.own", "failback"), ("agreed.below.own", "9"), ("source.id.own", ID.replace("7", "8"))
    assert alter(harness, *third) == ErrorCode.INVALID_REQUEST
    assert failback(harness, "own") == 0


@pytest.mark.parametrize(
    ("given_up", "other"),
    [
        ({"own.from": "0"}, None),
        ({"own.from": "6"}, "west"),
        ({"own.from": "6", "source.id": ID}, None),
        ({"own.from": "0", "source.id": ID.replace("7", "8")}, "west"),
    ],
)
def test_the_source_after_a_failback_that_was_given_up(given_up: dict[str, str], other: str | None) -> None:
    settings = {mirror_key("west", "agreed.below", "t"): "9"}
    settings |= {mirror_key("west", what, "t"): text for what, text in given_up.items()}
    assert other_source(settings, "east", "t", ID) == other
    assert other_source(settings, "east", "u", ID) is None
    assert given_up.get("source.id") is not None or other_source(settings, "west", "t", ID) is None


def test_a_cut_of_a_failback_before_is_refused(harness: Harness) -> None:
    """The leader's request is late: the topic went on without its source since, and fails back once more."""
    assert failback(harness, "own") == 0
    led = epoch_of(harness, "own")[0]
    assert alter(harness, ("mirror.own", "promoted")) == 0
    assert failback(harness, "own") == 0
    assert alter(harness, ("cut.0.own", f"5@{led}")) == ErrorCode.FENCED_LEADER_EPOCH
    assert alter(harness, ("mirror.own", "active")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("is_failed_back", "fenced"), [(True, True), (True, False), (False, True)])
def test_no_broker_that_is_away_gets_a_replica_after_a_failback(
    harness: Harness, *, is_failed_back: bool, fenced: bool
) -> None:
    """It may have the log from before, whose epochs have the numbers of the source's."""
    harness.brokers(2)
    harness.state.brokers[2] = replace(harness.state.brokers[2], fenced=fenced)
    assert not is_failed_back or failback(harness, "own") == 0
    partition = ReassignablePartition(partition_index=0, replicas=[2])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="own", partitions=[partition])])
    (answer,) = harness.do(harness.machine.reassignments.alter(request)).responses
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if is_failed_back and fenced else ErrorCode.NONE
    assert answer.partitions[0].error_code == code
