"""Each API and a client that may do nothing, describe, or all; a handler that checks nothing must say so here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
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
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
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
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.server.authorization import CLUSTER_NEEDS, NAMED_NEEDS, REFUSALS
from odradek.server.handlers import HANDLERS, fetch_metadata
from odradek.server.network.dispatch import Handler
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import NO_ID, Calls, error_codes
from tests.support.nodes.permissions import allow_rules, node_in_process, port_of, remove_authorizer

pytestmark = pytest.mark.only_ours

# Answered to everybody, as in Kafka: what a client needs before it can be known.
OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
# Tested with ACLs of their own, in test_api_acls.
OF_ACLS = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
# Checked by their handlers, on the cluster as a whole: what is asked, and the operation that is needed.
OF_THE_CLUSTER: dict[ApiKey, tuple[AclOperation, Any]] = {
    ApiKey.ELECT_LEADERS: (
        AclOperation.ALTER,
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000),
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


# Checked on what the request names, always "x": the operation that is needed, of which type, and what is asked, or what
# makes it for a version and the id of the topic "x".
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
# What a client may not describe is left out.
LISTINGS = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
# Whose token it is, in one way or another, renews and ends it (test_acl_tokens): no entry makes others do so.
OF_HOLDERS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
# What is needed depends on the version or the listener: each has a test of its own below.
OF_THEIR_OWN = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.DESCRIBE_CLUSTER}
CHECKED = {*CLUSTER_NEEDS, *OF_THE_CLUSTER}


def test_every_handler_is_in_one_of_the_tables() -> None:
    tables = [OPEN, OF_ACLS, OF_HOLDERS, OF_THEIR_OWN, LISTINGS, set(CLUSTER_NEEDS), set(OF_THE_CLUSTER), set(OF_NAMED)]
    assert {handler.api_key for handler in HANDLERS} - set().union(*tables) == set(), "a handler that checks nothing"
    assert set(NAMED_NEEDS) <= set(OF_NAMED)
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


def allow(
    node: NodeThread,
    *operations: AclOperation,
    kind: AclResourceType = AclResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    """Let everybody who is here do so much to one resource, and nothing else."""
    allow_rules(node, *((operation, kind, name) for operation in operations))


def id_of_x(node: NodeThread) -> UUID:
    """The id of the topic "x", which is made where it is not there."""
    topic = node.broker.services.image.topic("x")
    if topic is None:
        remove_authorizer(node)
        with Calls(port_of(node)) as calls:
            calls.create_topic(name="x")
        topic = node.broker.services.image.topic("x")
        assert topic is not None
    return topic.topic_id


def is_of_named(handler: Handler) -> bool:
    """Whether it is among those of OF_NAMED, which are served to clients."""
    return handler.api_key in OF_NAMED and "broker" in handler.listeners


def is_refused(node: NodeThread, handler: Handler, version: int, topic_id: UUID = NO_ID) -> bool:
    given: Any = None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if handler.api_key in OF_THE_CLUSTER:
        given = OF_THE_CLUSTER[handler.api_key][1]
    elif is_of_named(handler):
        _, kind, given = OF_NAMED[handler.api_key]
        given = given(version, topic_id) if callable(given) else given
        code = REFUSALS[kind]
    scope = "broker" if "broker" in handler.listeners else "controller"
    with Calls(port_of(node, scope)) as calls:
        answer = calls.ask(handler.api_key, version, given or API[handler.api_key].request())
    if handler.api_key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:  # no place for an error
        return not answer.results
    return code in set(error_codes(answer))


@pytest.mark.parametrize(
    "handler",
    [each for each in HANDLERS if each.api_key in CHECKED or each.handle is fetch_metadata.handle],
    ids=lambda handler: handler.api_key.name,
)
def test_the_cluster_operation_that_each_api_needs(node: NodeThread, handler: Handler) -> None:
    needed = CLUSTER_NEEDS.get(handler.api_key)
    if needed is None:
        needed = OF_THE_CLUSTER.get(handler.api_key, (AclOperation.CLUSTER_ACTION,))[0]
    for version in range(handler.min_version, handler.max_version + 1):
        allow(node)
        assert is_refused(node, handler, version), version
        allow(node, AclOperation.DESCRIBE)
        assert is_refused(node, handler, version) == (needed != AclOperation.DESCRIBE), version
        allow(node, needed)
        assert not is_refused(node, handler, version), version
    allow(node, AclOperation.ALL)
    assert not is_refused(node, handler, handler.max_version)


@pytest.mark.parametrize(
    "handler", [each for each in HANDLERS if is_of_named(each)], ids=lambda handler: handler.api_key.name
)
def test_the_operation_that_each_api_needs_on_what_it_names(node: NodeThread, handler: Handler) -> None:
    needed, kind, _ = OF_NAMED[handler.api_key]
    for version in range(handler.min_version, handler.max_version + 1):
        topic_id = id_of_x(node)
        allow(node)
        assert is_refused(node, handler, version, topic_id), version
        allow(node, needed, kind=kind, name="y")
        assert is_refused(node, handler, version, topic_id), version
        allow(node, AclOperation.DESCRIBE, kind=kind, name="x")
        assert is_refused(node, handler, version, topic_id) == (needed != AclOperation.DESCRIBE), version
        allow(node, needed, kind=kind, name="x")
        assert not is_refused(node, handler, version, topic_id), version
    topic_id = id_of_x(node)
    allow(node, AclOperation.ALL, kind=kind, name="x")
    assert not is_refused(node, handler, handler.max_version, topic_id)


def test_an_idempotent_producer_needs_some_topic_or_the_cluster(node: NodeThread) -> None:
    with Calls(port_of(node)) as calls:

        def code() -> int:
            return int(calls.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None)).error_code)

        allow(node)
        assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allow(node, AclOperation.READ, kind=_TOPIC, name="x")
        assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allow(node, AclOperation.WRITE, kind=_TOPIC, name="x")
        assert code() == ErrorCode.NONE
        allow(node, AclOperation.IDEMPOTENT_WRITE)
        assert code() == ErrorCode.NONE


def test_listings_have_what_may_be_described(node: NodeThread) -> None:
    remove_authorizer(node)
    with Calls(port_of(node)) as calls:
        for group in ("x", "y"):
            topic = calls.create_topic()
            calls.find_coordinator(group)
            calls.ask_until_loaded(ApiKey.OFFSET_COMMIT, 8, commit_of(group, topic))
            # The first question makes the topic of the transactions.
            found = FindCoordinatorRequest(key_type=1, coordinator_keys=[group])
            calls.ask_until_loaded(ApiKey.FIND_COORDINATOR, 4, found)
            asked = InitProducerIdRequest(transactional_id=group, transaction_timeout_ms=1000)
            calls.ask_until_loaded(ApiKey.INIT_PRODUCER_ID, 4, asked)

        def listed() -> tuple[set[str], set[str]]:
            groups = calls.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
            states = calls.ask(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest()).transaction_states
            return {each.group_id for each in groups}, {each.transactional_id for each in states}

        assert listed() == ({"x", "y"}, {"x", "y"})
        allow(node)
        assert listed() == (set(), set())
        allow(node, AclOperation.READ, kind=_GROUP, name="x")
        assert listed() == ({"x"}, set())
        allow(node, AclOperation.WRITE, kind=_ID, name="y")
        assert listed() == (set(), {"y"})
        allow(node, AclOperation.DESCRIBE)  # of the cluster: all groups
        assert listed() == ({"x", "y"}, set())


def commit_of(group: str, topic: str, topic_id: UUID = NO_ID) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


def test_a_controller_without_permissions_is_no_controller_yet(node: NodeThread) -> None:
    """While it starts it could only deny, and a node that may do all would take that for an answer."""

    async def install() -> None:
        node.broker.services.authorizer = StandardAuthorizer(["User:admin"])

    node.call(install())
    with Calls(port_of(node, "controller")) as calls:
        answer = calls.ask(ApiKey.DESCRIBE_QUORUM, 2, API[ApiKey.DESCRIBE_QUORUM].request())
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
