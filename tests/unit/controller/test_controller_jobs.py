"""The active controller at work: its periodic jobs, one leadership after another, and each API by its request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.controller.tokens import DelegationTokenConfig
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.alter_configs_request import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_configs_response import AlterConfigsResponse
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import CLUSTER, wanted
from tests.support.nodes.quorum_node import QuorumNode
from tests.support.waiting import eventually_async, some_turns

TOKENS = DelegationTokenConfig(secret_key="key", expiry_time_ms=100_000)
OWNER = "User:alice"
Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    nodes: list[QuorumNode] = []

    async def started(**settings: Any) -> QuorumNode:
        nodes.append(QuorumNode(tmp_path, **settings))
        return await nodes[-1].start()

    yield started
    for node in nodes:
        await node.stop()


def tokens_of(node: QuorumNode) -> list[Any]:
    return list(node.publisher.image.delegation_tokens.values())


# -- jobs --------------------------------------------------------------------------------------------------------------


async def test_between_two_looks_at_the_sessions_is_a_pause(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start()
    looks = 0

    def look(now_ms: int) -> Any:
        nonlocal looks
        looks += 1
        return Result([], None)

    monkeypatch.setattr(node.service._serving()[0].brokers, "fence_expired", look)
    for _ in range(10):
        await some_turns()
    assert looks <= 1, "one in an eighth of a session of 9 s"


async def test_a_silent_broker_is_fenced_in_time(start: Start) -> None:
    node = await start(config=ControllerConfig(broker_session_timeout_ms=200))
    for broker_id in (1, 2):
        await node.add_broker(broker_id)
    await eventually_async(lambda: all(each.fenced for each in node.publisher.image.brokers.values()))
    assert sorted(node.publisher.image.brokers) == [1, 2] and not node.failures


def full_for(node: QuorumNode, appends: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The disk is full for so many appends; returns how many of them are yet to come."""
    append, left = node.driver.append, appends

    def refuse(groups: Any) -> int:
        nonlocal left
        if left:
            left -= 1
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        return append(groups)

    monkeypatch.setattr(node.driver, "append", refuse)
    return lambda: left


async def test_a_full_disk_ends_no_job_of_a_controller_that_votes_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads on, and fences silent brokers, elects leaders and removes tokens once there is space."""
    often: Any = 0.02
    config = ControllerConfig(broker_session_timeout_ms=200, leader_imbalance_check_interval_seconds=often)
    node = await start(config=config, tokens=replace(TOKENS, check_interval_ms=10))
    await node.add_broker(1)
    token = CreateDelegationTokenRequest(max_lifetime_ms=200)
    await node.service.request(token, CreateDelegationTokenResponse, principal=OWNER)
    left = full_for(node, 4, monkeypatch)
    await eventually_async(lambda: not left())
    await eventually_async(lambda: node.publisher.image.brokers[1].fenced and not tokens_of(node))
    jobs = node.service._active_task
    assert jobs is not None and not jobs.done() and not node.failures
    await node.add_broker(2)
    await node.add_broker(3)
    await eventually_async(lambda: all(each.fenced for each in node.publisher.image.brokers.values()))


@pytest.mark.parametrize("enabled", [True, False])
async def test_preferred_leaders_lead_again_in_time(
    start: Start, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    often: Any = 0.01
    config = ControllerConfig(leader_imbalance_check_interval_seconds=often, auto_leader_rebalance_enable=enabled)
    node = await start(config=config)
    epochs = {broker_id: await node.add_broker(broker_id) for broker_id in (1, 2)}
    replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = wanted("t", -1, -1, assignments=[replicas])
    await node.service.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    await node.service.fence_dead(1, epochs[1])
    await node.beat(1, epochs[1])
    down = node.publisher.image.partition("t", 0)
    assert down is not None and (down.leader, down.isr) == (2, (2,))
    states = [BrokerState(broker_id=broker_id) for broker_id in (2, 1)]
    data = PartitionData(
        partition_index=0,
        leader_epoch=down.leader_epoch,
        partition_epoch=down.partition_epoch,
        new_isr_with_epochs=states,
    )
    topic_id = node.publisher.image.topics_by_name["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=2, broker_epoch=epochs[2], topics=[TopicData(topic_id=topic_id, partitions=[data])]
    )
    answer = await node.service.alter_partition(request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def leader() -> int:
        found = node.publisher.image.partition("t", 0)
        return -1 if found is None else found.leader

    if enabled:
        await eventually_async(lambda: leader() == 1)
    else:
        partitions = node.service._serving()[0].partitions
        elect, rounds = partitions.elect_offline_partitions, 0

        def counted() -> Any:
            nonlocal rounds
            rounds += 1
            return elect()

        monkeypatch.setattr(partitions, "elect_offline_partitions", counted)
        await eventually_async(lambda: rounds > 2)
        assert leader() == 2


async def test_tokens_whose_time_is_over_are_removed(start: Start) -> None:
    node = await start(tokens=replace(TOKENS, check_interval_ms=10))
    for lifetime_ms in (1, 1_000_000):
        request = CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms)
        await node.service.request(request, CreateDelegationTokenResponse, principal=OWNER)
    await eventually_async(lambda: len(tokens_of(node)) == 1)
    assert not node.failures


# -- one leadership after another --------------------------------------------------------------------------------------


async def test_a_controller_that_is_elected_again_goes_on_with_the_log(start: Start) -> None:
    node = await start(config=ControllerConfig(broker_session_timeout_ms=80))
    await node.add_broker(1)
    await node.service.request(CreateTopicsRequest(topics=[wanted("t")]), CreateTopicsResponse)
    first = node.service._runtime
    node.service.resigned()
    assert not node.service.is_ready
    node.service.elected(2)
    await asyncio.wait_for(node.service.wait_active(), 60)
    assert node.service._runtime is not first
    answer = await node.service.request(CreateTopicsRequest(topics=[wanted("t")]), CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    await eventually_async(lambda: node.publisher.image.brokers[1].fenced)


async def test_a_leadership_that_cannot_begin_stops_the_node(tmp_path: Path) -> None:
    contradiction = PartitionChangeRecord(topic_id=UUID(int=9), partition_id=0, leader=1)
    node = QuorumNode(tmp_path, bootstrap=[contradiction])
    await node.driver.start()
    await eventually_async(lambda: node.failures)
    assert not node.service.is_ready
    with pytest.raises(ApiError) as caught:
        await node.service.request(CreateTopicsRequest(topics=[wanted("t")]), CreateTopicsResponse)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    await node.stop()


# -- each API ----------------------------------------------------------------------------------------------------------


async def test_security_and_settings_are_changed_by_their_requests(start: Start) -> None:
    node = await start()
    service = node.service
    await node.add_broker(1)
    await service.request(CreateTopicsRequest(topics=[wanted("t")]), CreateTopicsResponse)
    setting = AlterableConfig(name="x", value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])
    altered = await service.request(AlterConfigsRequest(resources=[resource]), AlterConfigsResponse)
    assert [(each.resource_name, each.error_code) for each in altered.responses] == [("t", 0)]
    assert node.publisher.image.config(2, "t") == {"x": "1"}

    password = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    scram = await service.request(
        AlterUserScramCredentialsRequest(upsertions=[password]), AlterUserScramCredentialsResponse
    )
    assert [(each.user, each.error_code) for each in scram.results] == [("alice", 0)]

    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name="alice")], ops=[OpData(key="producer_byte_rate", value=7.0)]
    )
    quotas = await service.request(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    assert [each.error_code for each in quotas.entries] == [0]
    assert [dict(each) for each in node.publisher.image.client_quotas.values()] == [{"producer_byte_rate": 7.0}]

    acl = AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal=OWNER,
        host="*",
        operation=AclOperation.READ,
        permission_type=PermissionType.ALLOW,
    )
    created = await service.request(CreateAclsRequest(creations=[acl]), CreateAclsResponse)
    assert [each.error_code for each in created.results] == [0]
    assert [each.principal for each in node.publisher.image.acls.values()] == [OWNER]
    every = DeleteAclsFilter(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    deleted = await service.request(DeleteAclsRequest(filters=[every]), DeleteAclsResponse)
    assert [each.resource_name for each in deleted.filter_results[0].matching_acls] == ["t"]
    assert not node.publisher.image.acls


async def test_tokens_are_made_renewed_and_ended_by_their_owner(start: Start) -> None:
    node = await start(tokens=TOKENS)
    made = [
        await node.service.request(CreateDelegationTokenRequest(), CreateDelegationTokenResponse, principal=OWNER)
        for _ in range(2)
    ]
    assert {each.error_code for each in made} == {0} and made[0].token_id != made[1].token_id
    assert all(UUID(each.token_id).version == 4 for each in made)
    assert {each.principal_name for each in made} == {"alice"}
    renew = RenewDelegationTokenRequest(hmac=made[0].hmac, renew_period_ms=50_000)
    renewed = await node.service.request(renew, RenewDelegationTokenResponse, principal=OWNER)
    assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < made[0].expiry_timestamp_ms
    end = ExpireDelegationTokenRequest(hmac=made[0].hmac, expiry_time_period_ms=-1)
    with pytest.raises(ApiError) as caught:
        await node.service.request(end, ExpireDelegationTokenResponse, principal="User:carol")
    assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert len(tokens_of(node)) == 2
    assert (await node.service.request(end, ExpireDelegationTokenResponse, principal=OWNER)).error_code == 0
    assert len(tokens_of(node)) == 1


async def test_requests_about_the_quorum_reach_it(start: Start) -> None:
    """A quorum of one that is static: it has no voter to remove, and becomes a dynamic one."""
    node = await start()
    with pytest.raises(ApiError) as caught:
        await node.service.request(RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=1), RemoveRaftVoterResponse)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    for level, validate_only, code, after in (
        (2, False, ErrorCode.INVALID_UPDATE_VERSION, 0),
        (1, True, ErrorCode.NONE, 0),
        (1, False, ErrorCode.NONE, 1),
    ):
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=1)
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
        answer = await node.service.request(request, UpdateFeaturesResponse)
        assert (answer.error_code, node.driver.changes.kraft_version) == (code, after)
