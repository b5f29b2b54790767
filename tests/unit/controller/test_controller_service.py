"""A controller beside its machine: registrations of controllers, eligible replicas that are forgotten, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock
from odradek.controller.config import ControllerConfig
from odradek.controller.controllers import register_controller
from odradek.controller.eligible import clear_eligible
from odradek.controller.service import ControllerService
from odradek.controller.topics import TOPICS_PER_STEP
from odradek.metadata.features import CONTROLLER_REGISTRATION, DEFAULT_METADATA_VERSION
from odradek.metadata.model import ResourceType
from odradek.protocol.messages import assign_replicas_to_dirs_request as dirs
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.clear_elr_record import ClearElrRecord
from odradek.protocol.messages.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from odradek.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.security.quota.ledger import Account
from odradek.server.mutation_quotas import MutationCharge
from odradek.settings.broker import DRAIN_KEY
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import CLUSTER, Harness, Schema, wanted
from tests.support.nodes.quorum_node import QuorumNode
from tests.unit.controller.test_controller_partitions import alter, update

MINE = {"metadata.version": (7, 30), "group.version": (0, 1)}


def replay(harness: Harness, *records: Any) -> None:
    harness.do(Result(list(records), None))


# -- controllers -------------------------------------------------------------------------------------------------------


def features(levels: Mapping[str, tuple[int, int]]) -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in levels.items()
    ]


def registration(**changes: Any) -> ControllerRegistrationRequest:
    fields: dict[str, Any] = {
        "controller_id": 0,
        "incarnation_id": UUID(int=5),
        "zk_migration_ready": False,
        "listeners": [Listener(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in MINE.items()
        ],
    }
    return ControllerRegistrationRequest(**fields | changes)


def with_levels(**levels: int) -> Harness:
    harness = Harness()
    harness.state.features.clear()
    for name, level in levels.items():
        replay(harness, FeatureLevelRecord(name=name.replace("_", "."), feature_level=level))
    return harness


def test_a_controller_is_registered_with_what_it_can() -> None:
    harness = with_levels(metadata_version=CONTROLLER_REGISTRATION, group_version=1)
    (record,) = register_controller(harness.state, registration()).records
    assert (record.controller_id, record.incarnation_id) == (0, UUID(int=5))
    assert [(each.name, each.host, each.port, each.security_protocol) for each in record.end_points] == [
        ("CONTROLLER", "h", 9093, 0)
    ]
    found = {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features}
    assert found == MINE


@pytest.mark.parametrize("change", [{"controller_id": -1}, {"incarnation_id": UUID(int=0)}, {"listeners": []}])
def test_a_controller_without_a_name_or_an_address_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        register_controller(with_levels(metadata_version=30).state, registration(**change))
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({"metadata_version": CONTROLLER_REGISTRATION - 1}, "MetadataVersion is too old to support controllers"),
        ({"metadata_version": 31}, "version 31 of metadata.version. The controller wants a version between 7 and 30"),
        (
            {"metadata_version": 30, "group_version": 2},
            "version 2 of group.version. The controller wants a version between 0 and 1",
        ),
        (
            {"metadata_version": 30, "share_version": 1},
            "version 1 of share.version. The controller wants a version between 0 and 0",
        ),
    ],
)
def test_a_controller_that_lacks_a_feature_is_refused(levels: dict[str, int], says: str) -> None:
    with pytest.raises(ApiError) as caught:
        register_controller(with_levels(**levels).state, registration())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert says in str(caught.value)


# -- eligible replicas -------------------------------------------------------------------------------------------------


def without_leader() -> tuple[Harness, UUID, UUID]:
    """Topic `t` has no leader and one eligible replica, topic `u` is whole; with their ids."""
    harness = Harness()
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2])
    harness.topic("u", [3])
    alter(harness, [1])
    harness.beat(1, want_fence=True)
    assert harness.partition("t").elr == (1,)
    return harness, harness.state.topic_ids["t"], harness.state.topic_ids["u"]


def cleared(harness: Harness, topic: str = "", *, tracked: bool) -> list[tuple[Any, ...]]:
    return [
        ("clear", record.topic_name)
        if isinstance(record, ClearElrRecord)
        else (record.topic_id, record.isr, record.eligible_leader_replicas, record.last_known_elr)
        for record in clear_eligible(harness.state, topic, tracked=tracked)
    ]


def test_eligible_replicas_of_a_partition_without_a_leader_stay_so() -> None:
    harness, topic_id, _ = without_leader()
    last = list(harness.partition("t").last_known_elr)
    assert cleared(harness, tracked=True) == [("clear", ""), (topic_id, None, [1], last)]
    assert cleared(harness, tracked=False) == [(topic_id, [1], None, None), ("clear", "")]
    assert cleared(harness, "t", tracked=False) == [(topic_id, [1], None, None), ("clear", "t")]
    assert cleared(harness, "u", tracked=False) == cleared(harness, "u", tracked=True) == [("clear", "u")]


@pytest.mark.parametrize(("last", "isr"), [([2], [2]), ([], None)])
def test_the_last_eligible_replicas_stay_where_none_is_left(last: list[int], isr: list[int] | None) -> None:
    harness, topic_id, _ = without_leader()
    gone = PartitionChangeRecord(topic_id=topic_id, partition_id=0, eligible_leader_replicas=[], last_known_elr=last)
    replay(harness, gone)
    expected = [] if isr is None else [(topic_id, isr, None, None)]
    assert cleared(harness, tracked=False) == [*expected, ("clear", "")]


# -- features and topics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "kind", "says"),
    [
        (7, 2, "it might delete metadata"),
        (7, 3, "Unsafe metadata downgrade is not supported"),
        (7, 1, ""),
        (7, 4, "does not support the given upgrade type"),
        (7, 0, "does not support the given upgrade type"),
    ],
)
def test_a_metadata_version_goes_down_where_nothing_is_lost(level: int, kind: int, says: str) -> None:
    harness = Harness()
    harness.brokers(1)
    answer = update(harness, ("metadata.version", level, kind))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert says in answer.error_message


@pytest.mark.parametrize("allowed", [False, True])
def test_the_first_version_of_an_update_allows_a_downgrade_or_not(allowed: bool) -> None:
    harness = Harness()
    harness.brokers(1)
    key = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=allowed)
    answer = harness.machine.features.update(UpdateFeaturesRequest(feature_updates=[key]), 0).response
    assert answer.error_code == (ErrorCode.NONE if allowed else ErrorCode.INVALID_UPDATE_VERSION)
    if allowed:
        twice = harness.machine.features.update(UpdateFeaturesRequest(feature_updates=[key, key]), 0).response
        assert "group.version is named twice" in str(twice.error_message)


@pytest.mark.parametrize(
    ("count", "pauses"),
    [(TOPICS_PER_STEP - 1, 0), (TOPICS_PER_STEP, 1), (2 * TOPICS_PER_STEP - 1, 1), (2 * TOPICS_PER_STEP, 2)],
)
def test_a_creation_of_many_topics_lets_others_have_their_turn(count: int, pauses: int) -> None:
    harness = Harness()
    harness.brokers(1)
    request = CreateTopicsRequest(topics=[wanted(f"t{number}") for number in range(count)], validate_only=True)
    steps = harness.machine.topics.create(request)
    assert sum(1 for _ in steps) == pauses


# -- the service -------------------------------------------------------------------------------------------------------


def bare() -> ControllerService:
    return ControllerService(
        RealClock(), Random(1), ControllerConfig(), Schema(), cluster_id=CLUSTER, bootstrap=(), on_failed=lambda _: None
    )


async def test_before_it_is_elected_a_controller_answers_nothing() -> None:
    service = bare()
    assert (service.is_ready, service.active, service.brokers_without_heartbeat()) == (False, False, [])
    for asking in (
        service.update_features(UpdateFeaturesRequest()),
        service.describe_quorum(DescribeQuorumRequest()),
        service.unregister_broker(UnregisterBrokerRequest(broker_id=1)),
        service.add_raft_voter(AddRaftVoterRequest()),
    ):
        with pytest.raises(ApiError) as caught:
            await asking
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
    service.update_config(ControllerConfig(num_partitions=3))
    await service.stop()


async def test_a_request_is_answered_by_the_method_of_its_api(tmp_path: Path) -> None:
    others = asyncio.all_tasks()
    node = await QuorumNode(tmp_path).start()
    service = node.service
    assert (service.is_ready, service.active) == (True, True)
    epoch = await node.add_broker(1)
    account = Account(100, burst_s=1, start_s=1)
    answer = await service.request(
        CreateTopicsRequest(topics=[wanted("t", 3)]),
        CreateTopicsResponse,
        charge=MutationCharge(account, RealClock(), is_strict=True),
    )
    assert (answer.topics[0].error_code, account.amount) == (0, 3)
    service.update_config(ControllerConfig(num_partitions=2))
    answer = await service.request(CreateTopicsRequest(topics=[wanted("u", -1)]), CreateTopicsResponse)
    assert answer.topics[0].num_partitions == 2, "by the settings as they are now"
    key = FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
    for version, named in ((1, ["group.version"]), (2, []), (None, [])):
        updated = await service.request(UpdateFeaturesRequest(feature_updates=[key]), UpdateFeaturesResponse, version)
        assert (updated.error_code, [each.feature for each in updated.results]) == (0, named)
    await service.fence_dead(1, epoch)
    with pytest.raises(ApiError) as caught:
        await service.fence_dead(1, epoch + 1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    supported = features(dict.fromkeys(node.publisher.image.features, (0, 100)))
    registered = await service.request(
        registration(controller_id=1, features=supported), ControllerRegistrationResponse
    )
    assert registered.error_code == 0
    gone = await service.request(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
    assert gone.error_code == 0
    await service.stop()
    assert service._active_task is not None and service._active_task.done()
    await node.stop()
    assert asyncio.all_tasks() == others, "nothing of it goes on"
    assert not service.active


# -- the begin of a leadership, and the described settings -------------------------------------------------------------


def test_a_leadership_makes_up_for_what_the_one_before_left_undone() -> None:
    harness = Harness()
    harness.brokers(1)
    assert harness.machine.activate(0).records == []
    replay(harness, BeginTransactionRecord(name="half"))
    harness.state.features.pop("metadata.version")
    aborted, level = harness.machine.activate(0).records
    assert isinstance(aborted, AbortTransactionRecord)
    assert (level.name, level.feature_level) == ("metadata.version", DEFAULT_METADATA_VERSION)
    replay(harness, aborted, level)
    assert harness.machine.activate(0).records == []


def test_each_resource_of_an_alteration_is_answered_by_its_name() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.topic("t", [1])
    resources = [AlterConfigsResource(resource_type=kind, resource_name=name) for kind, name in ((2, "t"), (4, "1"))]
    answer = harness.do(harness.machine.configs.alter(AlterConfigsRequest(resources=resources)))
    assert [(each.resource_type, each.resource_name, each.error_code) for each in answer.responses] == [
        (2, "t", 0),
        (4, "1", 0),
    ]


def test_a_broker_says_where_its_own_replicas_are_alone() -> None:
    harness = Harness()
    harness.brokers(1)
    epoch = harness.register(2)
    harness.topic("t", [1], [1])
    topics = [
        (harness.state.topic_ids["t"], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (harness.state.topic_ids["t"], 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (UUID(int=99), 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    asked = [
        dirs.TopicData(topic_id=topic_id, partitions=[dirs.PartitionData(partition_index=number)])
        for topic_id, number, _ in topics
    ]
    request = dirs.AssignReplicasToDirsRequest(
        broker_id=2, broker_epoch=epoch, directories=[dirs.DirectoryData(id=UUID(int=5), topics=asked)]
    )
    before = harness.partition("t")
    (answer,) = harness.do(harness.machine.directories.assign(request)).directories
    assert [topic.partitions[0].error_code for topic in answer.topics] == [code for _, _, code in topics]
    assert harness.partition("t") == before


async def test_leaders_move_off_a_broker_before_its_drain_is_answered(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    for broker_id in (1, 2):
        await node.add_broker(broker_id)
    replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    await node.service.request(
        CreateTopicsRequest(topics=[wanted("t", -1, -1, assignments=[replicas])]), CreateTopicsResponse
    )
    leaders = []
    for _ in range(2):
        partition = node.publisher.image.partition("t", 0)
        assert partition is not None
        leaders.append(partition.leader)
        assert await node.set_config(ResourceType.BROKER, "1", DRAIN_KEY, "1") == 0
    assert leaders == [1, 2]
    await node.stop()
