"""Features that only some brokers have, state beside topics and brokers, and the end of a controller's term."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.service import METHODS
from odradek.protocol.apis import API
from odradek.protocol.messages import alter_partition_reassignments_request as moves
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.broker_registration_request import Feature
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.register_controller_record import ControllerFeature, RegisterControllerRecord
from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import Harness
from tests.support.models.controller_harness import wanted as wanted_topic
from tests.support.nodes.quorum_node import QuorumNode
from tests.unit.controller.test_controller_partitions import update

BROKER = 4
ELR, MIN_ISR = "eligible.leader.replicas.version", "min.insync.replicas"


def replay(harness: Harness, *records: Any) -> None:
    harness.do(Result(list(records), None))


def test_elr_begins_with_one_minimum_for_the_whole_cluster() -> None:
    harness = Harness()
    harness.brokers(1)
    replay(harness, FeatureLevelRecord(name=ELR, feature_level=0))
    replay(harness, ConfigRecord(resource_type=BROKER, resource_name="1", name=MIN_ISR, value="2"))
    assert update(harness, (ELR, 1, 1)).error_code == 0
    assert harness.state.features[ELR] == 1
    assert harness.state.configs.get((BROKER, "")) == {MIN_ISR: "1"}
    assert harness.state.configs.get((BROKER, "1")) is None
    replay(harness, ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value="3"))
    assert update(harness, (ELR, 1, 1)).error_code == 0, "it is there already, and changes nothing"
    assert harness.state.configs.get((BROKER, "")) == {MIN_ISR: "3"}


@pytest.mark.parametrize(
    ("levels", "level", "supports"),
    [((0, 0), 1, "0-0"), (None, 1, "0-0"), (None, 0, None), ((0, 1), 1, None), ((1, 1), 0, "1-1")],
)
def test_a_feature_goes_only_where_every_broker_can_follow(
    levels: tuple[int, int] | None, level: int, supports: str | None
) -> None:
    harness = Harness()
    harness.brokers(1)
    others = [each for each in harness.registration(2).features if each.name != "group.version"]
    if levels is not None:
        least, most = levels
        others.append(Feature(name="group.version", min_supported_version=least, max_supported_version=most))
    harness.state.features.pop("group.version", 0)
    harness.register(2, features=others)
    replay(harness, FeatureLevelRecord(name="group.version", feature_level=1 - level))
    answer = update(harness, ("group.version", level, 1 if level else 2))
    if supports is None:
        assert answer.error_code == 0 and harness.state.features.get("group.version", 0) == level
    else:
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Broker 2 supports versions {supports}" in answer.error_message


@pytest.mark.parametrize(("features", "code"), [([], ErrorCode.INVALID_UPDATE_VERSION), ([(0, 1)], ErrorCode.NONE)])
def test_a_controller_that_says_nothing_of_a_feature_holds_it_at_0(
    features: list[tuple[int, int]], code: ErrorCode
) -> None:
    harness = Harness()
    harness.brokers(1)
    known = [
        ControllerFeature(name="kraft.version", min_supported_version=least, max_supported_version=most)
        for least, most in features
    ]
    replay(harness, RegisterControllerRecord(controller_id=7, features=known))
    assert update(harness, ("kraft.version", 1, 1)).error_code == code
    assert update(harness, ("kraft.version", 0, 1)).error_code == ErrorCode.NONE


def test_credentials_are_kept_by_user_and_mechanism() -> None:
    harness = Harness()

    def credential(name: str, mechanism: int) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        )

    made = [credential(name, mechanism) for name in ("a", "b") for mechanism in (1, 2)]
    replay(harness, *made)
    replay(harness, RemoveUserScramCredentialRecord(name="a", mechanism=2))
    kept = [record for record in harness.state.others.values() if isinstance(record, UserScramCredentialRecord)]
    assert {(record.name, record.mechanism) for record in kept} == {("a", 1), ("b", 1), ("b", 2)}


async def test_blocks_of_producer_ids_do_not_overlap(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    epoch = await node.add_broker(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    first, second = [await node.service.allocate_producer_ids(request) for _ in range(2)]
    assert first.producer_id_len > 0
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len
    await node.stop()


async def test_a_caller_of_a_controller_that_resigns_gets_not_controller(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.add_broker(1)
    waiting = asyncio.get_running_loop().create_task(node.set_config(2, "t", "retention.ms", "7"))
    await asyncio.sleep(0)
    node.service.resigned()
    with pytest.raises(ApiError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await node.stop()


def test_a_fenced_broker_gets_a_session_with_its_first_heartbeat() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.beat(1, want_fence=True)
    assert harness.state.brokers[1].fenced
    harness.machine.brokers.begin_sessions(harness.now_ms)
    harness.now_ms += 60_000
    harness.beat(1)
    assert not harness.state.brokers[1].fenced
    assert harness.do(harness.machine.brokers.fence_expired(harness.now_ms + 8_999)) is None
    assert harness.do(harness.machine.brokers.fence_expired(harness.now_ms + 9_000)) == 1


def test_a_move_under_way_counts_as_many_replicas_as_it_leads_to() -> None:
    harness = Harness()
    harness.brokers(1, 2, 3, 4)
    harness.topic("t", [1, 2])

    def move(*replicas: int) -> int:
        partition = moves.ReassignablePartition(partition_index=0, replicas=list(replicas))
        request = moves.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=[moves.ReassignableTopic(name="t", partitions=[partition])],
        )
        answer = harness.do(harness.machine.reassignments.alter(request))
        return int(answer.responses[0].partitions[0].error_code)

    assert move(3, 4) == 0
    assert set(harness.partition("t").replicas) == {1, 2, 3, 4}
    assert move(1, 2, 3, 4) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(1, 3) == 0


def test_a_new_controller_elects_where_the_one_before_left_no_leader() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    topic_id = harness.state.topic_ids["t"]
    replay(harness, PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1))
    assert harness.partition("t").leader == -1
    harness.do(harness.machine.activate(harness.now_ms))
    assert harness.partition("t").leader == 1


def test_topics_of_one_request_share_the_most_partitions_that_it_may_add() -> None:
    harness = Harness()
    harness.brokers(1)
    for name in ("a", "b", "c"):
        harness.topic(name, [1])
    wanted = {"a": 6_001, "b": 4_002, "c": 4_001}
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=n, count=count, assignments=None) for n, count in wanted.items()],
        validate_only=True,
    )
    answer = harness.do(harness.machine.topics.add_partitions(request))
    codes = {result.name: result.error_code for result in answer.results}
    assert codes["a"] == codes["c"] == ErrorCode.NONE and codes["b"] != ErrorCode.NONE


def test_controller_methods_have_the_types_of_their_apis() -> None:
    for key, method in METHODS.items():
        hints = get_type_hints(method)
        assert (hints["request"], hints["return"]) == (API[key].request, API[key].response)


async def test_the_response_of_the_machine_reaches_the_caller(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    service = node.service
    epoch = await node.add_broker(1)
    assert (await service.create_topics(CreateTopicsRequest(topics=[wanted_topic("t")]))).topics[0].name == "t"
    grown = await service.create_partitions(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=10_000)
    )
    assert grown.results[0].name == "t" and grown.results[0].error_code == 0
    elected = await service.elect_leaders(
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=10_000)
    )
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    listed = await service.list_partition_reassignments(ListPartitionReassignmentsRequest(timeout_ms=10_000))
    assert listed.topics == []
    moved = await service.alter_partition_reassignments(
        moves.AlterPartitionReassignmentsRequest(
            timeout_ms=10_000,
            topics=[
                moves.ReassignableTopic(
                    name="t", partitions=[moves.ReassignablePartition(partition_index=1, replicas=[1])]
                )
            ],
        )
    )
    assert moved.responses[0].partitions[0].error_code == 0
    altered = await service.alter_partition(AlterPartitionRequest(broker_id=1, broker_epoch=epoch))
    assert altered.error_code == 0 and altered.topics == []
    assigned = await service.assign_replicas_to_dirs(AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch))
    assert assigned.error_code == 0 and assigned.directories == []
    assert (await service.unregister_broker(UnregisterBrokerRequest(broker_id=1))).error_code == 0
    await node.stop()
