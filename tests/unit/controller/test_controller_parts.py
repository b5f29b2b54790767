"""Features that only some can do, what is kept beside topics and brokers, and the end of a reign."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages import alter_partition_reassignments_request as moves
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_registration_request import Feature
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.register_controller_record import ControllerFeature, RegisterControllerRecord
from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.statemachine.machine import Result
from tests.support.controller_harness import Harness
from tests.support.quorum_node import QuorumNode
from tests.unit.controller.test_controller_partitions import update

BROKER = 4
ELR, MIN_ISR = "eligible.leader.replicas.version", "min.insync.replicas"


def replay(harness: Harness, *records: Any) -> None:
    harness.do(Result(list(records), None))


def test_eligible_leader_replicas_begin_with_one_minimum_for_the_whole_cluster() -> None:
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


def test_a_broker_that_a_new_controller_finds_fenced_has_a_session_from_its_first_beat() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.beat(1, want_fence=True)
    assert harness.state.brokers[1].fenced
    harness.machine.brokers.begin_sessions(harness.now_ms)
    harness.now_ms += 60_000
    harness.beat(1)
    assert not harness.state.brokers[1].fenced
    assert harness.do(harness.machine.brokers.fence_silent(harness.now_ms + 8_999)) is None
    assert harness.do(harness.machine.brokers.fence_silent(harness.now_ms + 9_000)) == 1


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
