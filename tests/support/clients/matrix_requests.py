"""The requests of the permission matrix for each API: those of other tests, and some that name several resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource as IncrementalResource,
)
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
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
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.clients.api_calls import batch
from tests.support.clients.needed_operations import OF_NAMED, OF_THE_CLUSTER
from tests.support.clients.unauthorized_requests import ON_THE_BROKERS_LISTENER, ON_THE_CONTROLLERS_LISTENER

MISSING_ID = UUID(int=77)
# The resource, principal and host of an ACL that a client with all permissions creates and deletes; no one uses it.
_ENTRY: Mapping[str, Any] = {"resource_name": "w", "principal": "User:another", "host": "*"}

_BATCH = batch(b"value", timestamp_ms=1_000)

Asked = Callable[[int, UUID], list[Any]]


def _add_partitions(version: int, topic_id: UUID) -> list[Any]:
    topics = [AddPartitionsToTxnTopic(name="x", partitions=[0])]
    if version < 4:
        return [AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)]
    transaction = AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)
    return [AddPartitionsToTxnRequest(transactions=[transaction])]


def _produce(version: int, topic_id: UUID) -> list[Any]:
    named = {"topic_id": topic_id} if version >= 13 else {"name": "x"}
    data = TopicProduceData(partition_data=[PartitionProduceData(records=_BATCH)], **named)
    return [ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])]


def _txn_offset_commit(version: int, topic_id: UUID) -> list[Any]:
    topics = [TxnOffsetCommitRequestTopic(name="x", partitions=[TxnOffsetCommitRequestPartition()])]
    groups = ("x", "foreign")
    return [TxnOffsetCommitRequest(transactional_id="x", group_id=group, topics=topics) for group in groups]


def _sync(version: int, topic_id: UUID) -> list[Any]:
    named: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return [SyncGroupRequest(group_id="x", **named)]


def _metadata(version: int, topic_id: UUID) -> list[Any]:
    flags: dict[str, Any] = {"allow_auto_topic_creation": version < 4}
    if version >= 8:
        flags["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        flags["include_cluster_authorized_operations"] = True
    asked = [MetadataRequest(topics=[MetadataRequestTopic(name="x")], **flags)]
    if version >= 12:
        asked.append(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)], **flags))
    return [*asked, MetadataRequest(topics=None if version else [], **flags)]


def _offset_commit(version: int, topic_id: UUID) -> list[Any]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    named = {"topic_id": topic_id} if version >= 10 else {"name": "x"}
    topics = [OffsetCommitRequestTopic(partitions=[partition], **named)]
    return [OffsetCommitRequest(group_id="x", generation_id_or_member_epoch=-1, topics=topics)]


def _offset_fetch(version: int, topic_id: UUID) -> list[Any]:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="x", partition_indexes=[0])]
        everything = [OffsetFetchRequest(group_id="x", topics=None)] if version >= 2 else []
        return [OffsetFetchRequest(group_id="x", topics=topics), *everything]
    named = {"topic_id": topic_id} if version >= 10 else {"name": "x"}
    wanted = [[OffsetFetchRequestTopics(partition_indexes=[0], **named)], None]
    return [OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="x", topics=each)]) for each in wanted]


def _find_coordinator(version: int, topic_id: UUID) -> list[Any]:
    if version >= 4:
        return [FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]) for kind in (0, 1)]
    return [FindCoordinatorRequest(key="x", key_type=kind) for kind in ((0, 1) if version else (0,))]


def _heartbeats(version: int, topic_id: UUID) -> list[Any]:
    """A member joins with topics of all three kinds, and leaves."""

    def heartbeat(epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="joined", member_id="m", member_epoch=epoch, topic_partitions=[], **fields
        )

    join = {"rebalance_timeout_ms": 60_000}
    known = ConsumerGroupHeartbeatRequest(group_id="x", member_id="m", member_epoch=-1)
    return [
        heartbeat(0, subscribed_topic_names=["x"], **join),
        heartbeat(0, subscribed_topic_names=["mine"], **join),
        heartbeat(-1, subscribed_topic_names=None),
        known,
    ]


def _describe_cluster(version: int, topic_id: UUID) -> list[Any]:
    kinds = (1, 2) if version else (1,)
    return [DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind) for kind in kinds]


def _settings(request: Any, resource: Any, **fields: Any) -> list[Any]:
    """Requests for the settings of topics, and of one resource of each other kind."""
    kinds = {2: "x", 4: "1", 8: "1", 16: "metrics", 32: "x"}
    return [
        request(resources=[resource(resource_type=kind, resource_name=name)], **fields) for kind, name in kinds.items()
    ]


def _tokens(version: int, topic_id: UUID) -> list[Any]:
    owners = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in ("some", "all")]
    return [DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenRequest(owners=owners)]


def _new_tokens(version: int, topic_id: UUID) -> list[Any]:
    if version < 3:
        return [CreateDelegationTokenRequest(max_lifetime_ms=-1)]
    own = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1)
    named: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "owner"}
    return [own, CreateDelegationTokenRequest(max_lifetime_ms=-1, **named)]


def _every_entry(of: str) -> dict[str, Any]:
    return {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": of,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }


# Requests that replace those of other tests: here lists have topics beside groups and transactions, and listings are
# requested as a whole.
RICHER: Mapping[ApiKey, Asked] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda version, topic_id: [
        AddOffsetsToTxnRequest(transactional_id="x", group_id=group) for group in ("x", "foreign")
    ],
    ApiKey.INIT_PRODUCER_ID: lambda version, topic_id: [
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000) for name in ("x", None)
    ],
    ApiKey.SYNC_GROUP: _sync,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeats,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda version, topic_id: [
        ConsumerGroupDescribeRequest(group_ids=["x", "joined"], include_authorized_operations=True)
    ],
    ApiKey.DESCRIBE_GROUPS: lambda version, topic_id: [
        DescribeGroupsRequest(groups=["x"], include_authorized_operations=version >= 3)
    ],
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda version, topic_id: [
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="x")]),
        DescribeTopicPartitionsRequest(),
    ],
    ApiKey.DESCRIBE_CONFIGS: lambda version, topic_id: _settings(DescribeConfigsRequest, DescribeConfigsResource),
    ApiKey.ALTER_CONFIGS: lambda version, topic_id: _settings(
        AlterConfigsRequest, AlterConfigsResource, validate_only=True
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda version, topic_id: _settings(
        IncrementalAlterConfigsRequest, IncrementalResource, validate_only=True
    ),
    ApiKey.OFFSET_DELETE: lambda version, topic_id: [
        OffsetDeleteRequest(
            group_id="x",
            topics=[OffsetDeleteRequestTopic(name="x", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        )
    ],
    ApiKey.ELECT_LEADERS: lambda version, topic_id: [
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="x", partitions=[0])], timeout_ms=10_000)
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda version, topic_id: [
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="x", partitions=[ReassignablePartition(replicas=[4242])])], timeout_ms=10_000
        )
    ],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda version, topic_id: [
        ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000)
    ],
    ApiKey.DESCRIBE_LOG_DIRS: lambda version, topic_id: [DescribeLogDirsRequest(topics=None)],
    ApiKey.WRITE_TXN_MARKERS: lambda version, topic_id: [
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(producer_id=4242, topics=[WritableTxnMarkerTopic(name="z", partition_indexes=[0])])
            ]
        )
    ],
    ApiKey.CREATE_DELEGATION_TOKEN: _new_tokens,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _tokens,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda version, topic_id: [
        RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=1000)
    ],
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda version, topic_id: [
        ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=1000)
    ],
    ApiKey.DESCRIBE_ACLS: lambda version, topic_id: [DescribeAclsRequest(**_every_entry("User:some"))],
    ApiKey.CREATE_ACLS: lambda version, topic_id: [
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=AclResourceType.TOPIC,
                    operation=AclOperation.READ,
                    permission_type=PermissionType.ALLOW,
                    **_ENTRY,
                )
            ]
        )
    ],
    ApiKey.DELETE_ACLS: lambda version, topic_id: [
        DeleteAclsRequest(filters=[DeleteAclsFilter(**_every_entry("User:another"))])
    ],
}


def asked_of(api_key: ApiKey, listener: str, version: int, topic_id: UUID) -> list[Any]:
    """The requests of one API for "x", whose topic has that id."""
    between_controllers = listener == "controller" and api_key in ON_THE_CONTROLLERS_LISTENER
    if api_key in RICHER and not between_controllers:
        return RICHER[api_key](version, topic_id)
    if api_key in OF_NAMED and not between_controllers:
        given = OF_NAMED[api_key][2]
        return [given(version, topic_id) if callable(given) else given]
    if api_key in OF_THE_CLUSTER and OF_THE_CLUSTER[api_key][1] is not None:
        return [OF_THE_CLUSTER[api_key][1]]
    table = ON_THE_BROKERS_LISTENER if listener == "broker" else ON_THE_CONTROLLERS_LISTENER
    given_of = table.get(api_key) or ON_THE_BROKERS_LISTENER.get(api_key)
    return [given_of[0](version)] if given_of is not None else [API[api_key].request()]
