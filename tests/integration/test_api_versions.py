"""Every version of every API that a node advertises is sent and answered; then what ApiVersions itself says.

One request per API that any version can carry, with all it needs to succeed: an error code anywhere in the answer is a
failure, unless the table says which version answers which.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages import describe_producers_request, describe_quorum_request
from odradek.protocol.messages import describe_topic_partitions_request as describe_topic_partitions
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from odradek.protocol.messages.alter_configs_request import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.incremental_alter_configs_request import AlterableConfig as IncrementalConfig
from odradek.protocol.messages.incremental_alter_configs_request import AlterConfigsResource as IncrementalResource
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.push_telemetry_request import PushTelemetryRequest
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.server.handlers import HANDLERS
from tests.support.clients.api_calls import Calls, batch, error_codes, fetch_topic, fresh_name, name_of
from tests.support.clients.unauthorized_requests import ON_THE_BROKERS_LISTENER, ON_THE_CONTROLLERS_LISTENER
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node

TOPIC = 2  # ConfigResource.Type


@dataclass
class World:
    """The subjects of the requests: a topic with records, and a group with a member and a commit."""

    calls: Calls
    topic: str
    topic_id: UUID

    def group(self) -> str:
        """A group whose coordinator is loaded."""
        name = fresh_name("group")
        self.calls.find_coordinator(name)
        return name

    def join(self, group: str, version: int = 9) -> Any:
        """Join as the only member, in one step or two as the version has it."""
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=60_000, protocol_type="consumer", protocols=protocols
        )
        if version >= 1:
            request.rebalance_timeout_ms = 60_000
        answer = self.calls.request(ApiKey.JOIN_GROUP, version, request)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            request.member_id = answer.member_id
            answer = self.calls.request(ApiKey.JOIN_GROUP, version, request)
        return answer

    def stable(self) -> tuple[str, str]:
        """(group, its only member), in generation 1."""
        group = self.group()
        member = self.join(group).member_id
        assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
        request = SyncGroupRequest(group_id=group, generation_id=1, member_id=member, assignments=assignments)
        request.protocol_type, request.protocol_name = "consumer", "range"
        answer = self.calls.request(ApiKey.SYNC_GROUP, 5, request)
        assert not answer.error_code, name_of(answer.error_code)
        return group, member

    def commit(self, group: str) -> None:
        answer = self.calls.request(ApiKey.OFFSET_COMMIT, 9, _offset_commit(self, 9, group))
        assert not any(error_codes(answer))


@pytest.fixture(scope="module")
def topic(node: Node) -> str:
    with Calls(node.port) as calls:
        name = calls.create_topic(2)
        calls.fill(name, 5)
        return name


@pytest.fixture
def world(node: Node, topic: str) -> Iterator[World]:
    with Calls(node.port) as calls:
        yield World(calls, topic, calls.topic_id(topic))


def _produce(world: World, version: int) -> ProduceRequest:
    data = PartitionProduceData(index=1, records=batch(b"one", b"two"))
    topic = TopicProduceData(name=world.topic, topic_id=world.topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _fetch(world: World, version: int) -> FetchRequest:
    topic = fetch_topic(world.topic_id if version >= 13 else world.topic, {0: 0, 1: 0})
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2**20, session_epoch=-1, topics=[topic])


def _list_offsets(world: World, version: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1 - number) for number in range(2)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=world.topic, partitions=asked)])


def _offset_commit(world: World, version: int, group: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="note")
    topic = OffsetCommitRequestTopic(name=world.topic, partitions=[partition])
    if version >= 10:
        topic.topic_id = world.topic_id
    return OffsetCommitRequest(group_id=group or world.group(), topics=[topic])


def _offset_fetch(world: World, version: int) -> OffsetFetchRequest:
    group = world.group()
    world.commit(group)
    if version < 8:
        named = OffsetFetchRequestTopic(name=world.topic, partition_indexes=[0])
        return OffsetFetchRequest(group_id=group, topics=[named])
    topic = OffsetFetchRequestTopics(name=world.topic, partition_indexes=[0])
    if version >= 10:
        topic.topic_id = world.topic_id
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])])


def _find_coordinator(world: World, version: int) -> FindCoordinatorRequest:
    group = world.group()
    return FindCoordinatorRequest(coordinator_keys=[group]) if version >= 4 else FindCoordinatorRequest(key=group)


def _join_group(world: World, version: int) -> JoinGroupRequest:
    group = world.group()
    member = world.join(group, version).member_id
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"more")]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=60_000, protocol_type="consumer", protocols=protocols)
    request.member_id = member
    if version >= 1:
        request.rebalance_timeout_ms = 60_000
    return request


def _heartbeat(world: World, version: int) -> HeartbeatRequest:
    group, member = world.stable()
    return HeartbeatRequest(group_id=group, generation_id=1, member_id=member)


def _leave_group(world: World, version: int) -> LeaveGroupRequest:
    group, member = world.stable()
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])


def _sync_group(world: World, version: int) -> SyncGroupRequest:
    group = world.group()
    member = world.join(group).member_id
    assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=member, assignments=assignments)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def _describe_groups(world: World, version: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[world.stable()[0]])


def _api_versions(world: World | None, version: int) -> ApiVersionsRequest:
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(client_software_name="test-1", client_software_version="1.0")


def _create_topics(world: World, version: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=fresh_name(), num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def _delete_topics(world: World, version: int) -> DeleteTopicsRequest:
    names = [world.calls.create_topic(), world.calls.create_topic()]
    if version < 6:
        return DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)
    by_id = DeleteTopicState(name=None, topic_id=world.calls.topic_id(names[1]))
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=names[0]), by_id], timeout_ms=30_000)


def _delete_records(world: World, version: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name=world.topic, partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)


def _offset_for_leader_epoch(world: World, version: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=world.topic, partitions=[partition])])


def _describe_configs(world: World, version: int) -> DescribeConfigsRequest:
    named = [(TOPIC, world.topic), (4, "1"), (4, "")]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in named
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True)


def _alter_configs(world: World, version: int) -> AlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", value="1000000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=world.topic, configs=[config])
    return AlterConfigsRequest(resources=[resource])


def _incremental_alter_configs(world: World, version: int) -> IncrementalAlterConfigsRequest:
    config = IncrementalConfig(name="retention.ms", config_operation=0, value="2000000")
    resource = IncrementalResource(resource_type=TOPIC, resource_name=world.topic, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def _alter_replica_log_dirs(world: World, version: int) -> AlterReplicaLogDirsRequest:
    path = world.calls.request(ApiKey.DESCRIBE_LOG_DIRS, 2, _describe_log_dirs(world, 2)).results[0].log_dir
    topic = AlterReplicaLogDirTopic(name=world.topic, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])


def _describe_log_dirs(world: World, version: int) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=world.topic, partitions=[0, 1])])


def _create_partitions(world: World, version: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=world.calls.create_topic(), count=3, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)


def _delete_groups(world: World, version: int) -> DeleteGroupsRequest:
    group = world.group()
    world.commit(group)
    return DeleteGroupsRequest(groups_names=[group])


def _offset_delete(world: World, version: int) -> OffsetDeleteRequest:
    group = world.group()
    world.commit(group)
    partition = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=world.topic, partitions=[partition])]
    )


def _describe_quorum(world: World, version: int) -> describe_quorum_request.DescribeQuorumRequest:
    topic = describe_quorum_request.TopicData(topic_name="__cluster_metadata")
    topic.partitions = [describe_quorum_request.PartitionData(partition_index=0)]
    return describe_quorum_request.DescribeQuorumRequest(topics=[topic])


def _describe_producers(world: World, version: int) -> describe_producers_request.DescribeProducersRequest:
    topic = describe_producers_request.TopicRequest(name=world.topic, partition_indexes=[0, 1])
    return describe_producers_request.DescribeProducersRequest(topics=[topic])


def _describe_topic_partitions(world: World, version: int) -> describe_topic_partitions.DescribeTopicPartitionsRequest:
    topic = describe_topic_partitions.TopicRequest(name=world.topic)
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[topic])


REQUESTS: dict[ApiKey, Callable[[World, int], Any]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: lambda world, version: MetadataRequest(topics=[MetadataRequestTopic(name=world.topic)]),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: lambda world, version: ListGroupsRequest(),
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda world, version: InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: lambda world, version: DescribeAclsRequest(),
    ApiKey.CREATE_ACLS: lambda world, version: CreateAclsRequest(),
    ApiKey.DELETE_ACLS: lambda world, version: DeleteAclsRequest(),
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UPDATE_FEATURES: lambda world, version: UpdateFeaturesRequest(timeout_ms=30_000),
    ApiKey.DESCRIBE_CLUSTER: lambda world, version: DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.CREATE_DELEGATION_TOKEN: lambda world, version: CreateDelegationTokenRequest(max_lifetime_ms=-1),
    ApiKey.RENEW_DELEGATION_TOKEN: lambda world, version: RenewDelegationTokenRequest(hmac=b"none"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda world, version: ExpireDelegationTokenRequest(hmac=b"none"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda world, version: DescribeDelegationTokenRequest(),
    ApiKey.SASL_HANDSHAKE: lambda world, version: SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: lambda world, version: SaslAuthenticateRequest(),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda world, version: DescribeUserScramCredentialsRequest(),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda world, version: AlterUserScramCredentialsRequest(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda world, version: DescribeClientQuotasRequest(),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda world, version: AlterClientQuotasRequest(),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: lambda world, version: GetTelemetrySubscriptionsRequest(),
    ApiKey.PUSH_TELEMETRY: lambda world, version: PushTelemetryRequest(),
    ApiKey.LIST_CONFIG_RESOURCES: lambda world, version: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}


# Errors without a login, on a listener without SASL; and errors of ACLs, where there is no authorizer.
_OF_NAMED_USERS = {
    ApiKey.SASL_HANDSHAKE: ErrorCode.ILLEGAL_SASL_STATE,
    ApiKey.SASL_AUTHENTICATE: ErrorCode.ILLEGAL_SASL_STATE,
    ApiKey.CREATE_DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ApiKey.RENEW_DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ApiKey.EXPIRE_DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ApiKey.DESCRIBE_ACLS: ErrorCode.SECURITY_DISABLED,
    ApiKey.PUSH_TELEMETRY: ErrorCode.INVALID_REQUEST,
}


# Clients are invited to push metrics where a node shows them, see test_client_telemetry.
WHERE_METRICS_ARE_SHOWN = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def advertised(port: int) -> dict[int, tuple[int, int]]:
    """(first, last) version by API key, as the node at that port says."""
    with Wire(port) as wire:
        answer = wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_this_file_has_a_request_for_every_row_of_the_table() -> None:
    asked = {*REQUESTS, *ON_THE_BROKERS_LISTENER}
    assert asked == {handler.api_key for handler in HANDLERS if "broker" in handler.listeners}
    asked = {*REQUESTS, *ON_THE_BROKERS_LISTENER, *ON_THE_CONTROLLERS_LISTENER}
    assert asked == {handler.api_key for handler in HANDLERS}


@pytest.mark.parametrize("api_key", REQUESTS, ids=lambda key: key.name)
def test_every_advertised_version_is_answered(world: World, node: Node, api_key: ApiKey) -> None:
    first, last = advertised(node.port).get(api_key, (0, 0))
    if api_key == ApiKey.PRODUCE:
        first = 3
    for version in range(first, min(last, API[api_key].max_version) + 1):
        answer = world.calls.request_until_loaded(api_key, version, REQUESTS[api_key](world, version))
        expected = {_OF_NAMED_USERS[api_key]} if api_key in _OF_NAMED_USERS else set()
        assert {code for code in error_codes(answer) if code} == expected, (version, answer)


@pytest.mark.only_ours
def test_api_versions_is_the_table_of_handlers(node: Node) -> None:
    said = advertised(node.port)
    for handler in HANDLERS:
        if "broker" not in handler.listeners:
            continue
        if handler.api_key in WHERE_METRICS_ARE_SHOWN:
            assert handler.api_key not in said
            continue
        lowest = handler.min_version if handler.advertised_min is None else handler.advertised_min
        assert said.pop(handler.api_key) == (lowest, handler.max_version), handler.api_key.name
    assert not said, "advertised without a handler"


@pytest.mark.only_ours
def test_the_controller_listener_advertises_its_own(node: Node) -> None:
    theirs = {handler.api_key for handler in HANDLERS if "controller" in handler.listeners}
    assert set(advertised(node.controller_port)) == theirs
    with Wire(node.controller_port) as wire:
        wire.send(ApiKey.PRODUCE, 9, ProduceRequest())
        assert wire.is_closed_by_peer(), "an API of the other listener is not served"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_is_advertised_from_0_and_refused_below_3(node: Node, version: int) -> None:
    assert advertised(node.port)[ApiKey.PRODUCE][0] == 0
    with Wire(node.port) as wire:
        # These versions began with acks, timeout and an empty list of topics.
        body = struct.pack(">hii", 1, 1000, 0)
        header = struct.pack(">hhih", ApiKey.PRODUCE, version, 7, -1)
        wire.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
        assert wire.is_closed_by_peer()


@pytest.mark.parametrize("version", [6, 100, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(node: Node, version: int) -> None:
    with Wire(node.port) as wire:
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\x00"
        wire.socket.sendall(struct.pack(">i", len(header)) + header)
        answer: ApiVersionsResponse = wire.receive(ApiKey.API_VERSIONS, 0, 77)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        own = next(each for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS)
        assert own.max_version == advertised(node.port)[ApiKey.API_VERSIONS][1]
        again = wire.request(ApiKey.API_VERSIONS, own.max_version, _api_versions(None, own.max_version))
        assert not again.error_code, "the connection goes on"


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1."), ("ä", "1")]
)
def test_client_software_must_have_a_proper_name(node: Node, name: str, version: str) -> None:
    with Wire(node.port) as wire:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert wire.request(ApiKey.API_VERSIONS, 3, request).error_code == ErrorCode.INVALID_REQUEST


def test_features_are_those_that_the_cluster_has_finalized(node: Node) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with Wire(node.port) as wire:
        shown = wire.request(ApiKey.API_VERSIONS, 4, request)
        older = wire.request(ApiKey.API_VERSIONS, 3, request)
    assert shown.finalized_features_epoch >= 0
    finalized = {each.name: each for each in shown.finalized_features}
    supported = {each.name: each for each in shown.supported_features}
    assert "metadata.version" in finalized
    for name, each in finalized.items():
        assert each.min_version_level == each.max_version_level
        assert supported[name].min_version <= each.max_version_level <= supported[name].max_version
    assert any(each.min_version == 0 for each in supported.values())
    # A client that knows version 3 alone fails on a lowest level of 0 (KIP-1022).
    assert all(each.min_version > 0 for each in older.supported_features)


@pytest.mark.only_ours  # KIP-1242 came after 4.3
def test_a_client_of_another_cluster_or_node_must_rebootstrap(node: Node) -> None:
    def ask(**fields: Any) -> int:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1", **fields)
        with Wire(node.port) as wire:
            code: int = wire.request(ApiKey.API_VERSIONS, 5, request).error_code
            return code

    with Wire(node.port) as wire:
        cluster_id = wire.request(ApiKey.METADATA, 9, MetadataRequest(topics=[])).cluster_id
    assert ask(cluster_id=cluster_id, node_id=1) == ErrorCode.NONE
    assert ask(cluster_id="other", node_id=1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert ask(cluster_id=cluster_id, node_id=2) == ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (ApiKey.METADATA, 14), (ApiKey.METADATA, -1)])
def test_unknown_apis_and_versions_close_the_connection(node: Node, key: int, version: int) -> None:
    with Wire(node.port) as wire:
        header = struct.pack(">hhih", key, version, 1, -1) + bytes(8)
        wire.socket.sendall(struct.pack(">i", len(header)) + header)
        assert wire.is_closed_by_peer()
