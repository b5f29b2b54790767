"""A request of each API that is checked on what it names, or on the cluster as a whole, and the operation it needs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from odradek.protocol.messages.describe_topic_partitions_request import TopicRequest as DescribedTopicRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource as IncrementalResource,
)
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
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
from tests.support.clients.api_calls import NO_ID

# Requests that their handlers authorize on the cluster: the operation that is needed, and the request.
OF_THE_CLUSTER: dict[ApiKey, tuple[AclOperation, Any]] = {
    ApiKey.ELECT_LEADERS: (
        AclOperation.ALTER,
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        AclOperation.ALTER,
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(replicas=[4242])])]
        ),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        AclOperation.ALTER,
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a", mechanism=1)]),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        AclOperation.ALTER_CONFIGS,
        AlterClientQuotasRequest(entries=[EntryData(entity=[EntityData(entity_type="user", entity_name="a")])]),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        AclOperation.ALTER,
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/none", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
        ),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (AclOperation.DESCRIBE, None),
    ApiKey.WRITE_TXN_MARKERS: (
        AclOperation.CLUSTER_ACTION,
        WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
        ),
    ),
}
_TOPIC, _GROUP, _ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_CLUSTER = AclResourceType.CLUSTER


def named(by_id: bool, topic_id: UUID, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_id} if by_id else {field: "x"}


# Requests that are authorized on the resource that they name, always "x": the operation that is needed, the type of the
# resource, and the request, or a function that makes it for a version and the id of the topic "x".
OF_NAMED: dict[ApiKey, tuple[AclOperation, AclResourceType, Any]] = {
    ApiKey.JOIN_GROUP: (AclOperation.READ, _GROUP, JoinGroupRequest(group_id="x", session_timeout_ms=1)),
    ApiKey.SYNC_GROUP: (AclOperation.READ, _GROUP, SyncGroupRequest(group_id="x")),
    ApiKey.HEARTBEAT: (AclOperation.READ, _GROUP, HeartbeatRequest(group_id="x")),
    ApiKey.LEAVE_GROUP: (AclOperation.READ, _GROUP, LeaveGroupRequest(group_id="x")),
    ApiKey.DESCRIBE_GROUPS: (AclOperation.DESCRIBE, _GROUP, DescribeGroupsRequest(groups=["x"])),
    ApiKey.DELETE_GROUPS: (AclOperation.DELETE, _GROUP, DeleteGroupsRequest(groups_names=["x"])),
    ApiKey.END_TXN: (AclOperation.WRITE, _ID, EndTxnRequest(transactional_id="x")),
    ApiKey.ADD_OFFSETS_TO_TXN: (AclOperation.WRITE, _ID, AddOffsetsToTxnRequest(transactional_id="x", group_id="g")),
    ApiKey.INIT_PRODUCER_ID: (AclOperation.WRITE, _ID, InitProducerIdRequest(transactional_id="x")),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        AclOperation.DESCRIBE,
        _ID,
        DescribeTransactionsRequest(transactional_ids=["x"]),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        AclOperation.READ,
        _TOPIC,
        DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=[0])]),
    ),
    ApiKey.DELETE_RECORDS: (
        AclOperation.DELETE,
        _TOPIC,
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="x", partitions=[DeleteRecordsPartition()])]),
    ),
    ApiKey.LIST_OFFSETS: (
        AclOperation.DESCRIBE,
        _TOPIC,
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="x", partitions=[ListOffsetsPartition(timestamp=-1)])]
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        AclOperation.DESCRIBE,
        _TOPIC,
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="x", partitions=[OffsetForLeaderPartition(leader_epoch=0)])]
        ),
    ),
    ApiKey.PRODUCE: (
        AclOperation.WRITE,
        _TOPIC,
        lambda version, topic_id: ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(**named(version >= 13, topic_id), partition_data=[PartitionProduceData()])],
        ),
    ),
    ApiKey.FETCH: (
        AclOperation.READ,
        _TOPIC,
        lambda version, topic_id: FetchRequest(
            replica_id=-1,
            max_bytes=1000,
            topics=[
                FetchTopic(
                    **named(version >= 13, topic_id, "topic"), partitions=[FetchPartition(partition_max_bytes=1000)]
                )
            ],
        ),
    ),
    ApiKey.METADATA: (
        AclOperation.DESCRIBE,
        _TOPIC,
        lambda version, topic_id: MetadataRequest(
            topics=[
                MetadataRequestTopic(name=None, topic_id=topic_id) if version >= 12 else MetadataRequestTopic(name="x")
            ]
        ),
    ),
    ApiKey.OFFSET_COMMIT: (AclOperation.READ, _GROUP, lambda version, topic_id: commit_of("x", "x", topic_id)),
    ApiKey.OFFSET_FETCH: (
        AclOperation.DESCRIBE,
        _GROUP,
        lambda version, topic_id: (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="x", topics=None)])
            if version >= 8
            else OffsetFetchRequest(group_id="x", topics=[OffsetFetchRequestTopic(name="x", partition_indexes=[0])])
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        AclOperation.DESCRIBE,
        _GROUP,
        lambda version, topic_id: (
            FindCoordinatorRequest(coordinator_keys=["x"]) if version >= 4 else FindCoordinatorRequest(key="x")
        ),
    ),
    ApiKey.CREATE_TOPICS: (
        AclOperation.CREATE,
        _TOPIC,
        CreateTopicsRequest(
            topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)],
            timeout_ms=1000,
            validate_only=True,
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        AclOperation.DELETE,
        _TOPIC,
        lambda version, topic_id: (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
            if version >= 6
            else DeleteTopicsRequest(topic_names=["x"], timeout_ms=1000)
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        AclOperation.WRITE,
        _ID,
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="x", partitions=[TxnOffsetCommitRequestPartition()])],
        ),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        AclOperation.DESCRIBE_CONFIGS,
        _TOPIC,
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="x")]),
    ),
    ApiKey.ALTER_CONFIGS: (
        AclOperation.ALTER_CONFIGS,
        _TOPIC,
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name="x")],
            validate_only=True,
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        AclOperation.ALTER_CONFIGS,
        _TOPIC,
        IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(resource_type=2, resource_name="x")],
            validate_only=True,
        ),
    ),
    ApiKey.CREATE_PARTITIONS: (
        AclOperation.ALTER,
        _TOPIC,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="x", count=9, assignments=None)], timeout_ms=1000, validate_only=True
        ),
    ),
    ApiKey.OFFSET_DELETE: (AclOperation.DELETE, _GROUP, OffsetDeleteRequest(group_id="x")),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        AclOperation.READ,
        _GROUP,
        ConsumerGroupHeartbeatRequest(group_id="x", member_id="m", member_epoch=-1),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (AclOperation.DESCRIBE, _GROUP, ConsumerGroupDescribeRequest(group_ids=["x"])),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        AclOperation.DESCRIBE,
        _TOPIC,
        DescribeTopicPartitionsRequest(topics=[DescribedTopicRequest(name="x")]),
    ),
}


def commit_of(group: str, topic: str, topic_id: UUID = NO_ID) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
