"""One request of each API that an unrelated client has no good reason to send, with its response in every version.

Producers that began no transaction, members of no group, brokers and controllers that are none: nothing may change, and
the error is Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    add_raft_voter_request,
    allocate_producer_ids_request,
    alter_partition_reassignments_request,
    alter_partition_request,
    assign_replicas_to_dirs_request,
    begin_quorum_epoch_request,
    broker_heartbeat_request,
    broker_registration_request,
    consumer_group_describe_request,
    consumer_group_heartbeat_request,
    controller_registration_request,
    describe_transactions_request,
    elect_leaders_request,
    end_quorum_epoch_request,
    end_txn_request,
    envelope_request,
    fetch_request,
    fetch_snapshot_request,
    list_partition_reassignments_request,
    list_transactions_request,
    remove_raft_voter_request,
    txn_offset_commit_request,
    unregister_broker_request,
    update_raft_voter_request,
    vote_request,
    write_txn_markers_request,
)

UNKNOWN_ID = 4242
STRANGE_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
STRANGE_ID = UUID(int=77)
NONE = ErrorCode.NONE


def _add_partitions(version: int) -> Any:
    topic = add_partitions_to_txn_request.AddPartitionsToTxnTopic(name="no-topic", partitions=[0])
    if version >= 4:
        transaction = add_partitions_to_txn_request.AddPartitionsToTxnTransaction(
            transactional_id="unknown", producer_id=UNKNOWN_ID, topics=[topic]
        )
        return add_partitions_to_txn_request.AddPartitionsToTxnRequest(transactions=[transaction])
    return add_partitions_to_txn_request.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="unknown", v3_and_below_producer_id=UNKNOWN_ID, v3_and_below_topics=[topic]
    )


def _txn_offset_commit(version: int) -> Any:
    partition = txn_offset_commit_request.TxnOffsetCommitRequestPartition(committed_metadata="")
    topic = txn_offset_commit_request.TxnOffsetCommitRequestTopic(name="no-topic", partitions=[partition])
    return txn_offset_commit_request.TxnOffsetCommitRequest(
        transactional_id="unknown", group_id="no-group", producer_id=UNKNOWN_ID, topics=[topic]
    )


def _markers(version: int) -> Any:
    topic = write_txn_markers_request.WritableTxnMarkerTopic(name="no-topic", partition_indexes=[0])
    marker = write_txn_markers_request.WritableTxnMarker(producer_id=UNKNOWN_ID, topics=[topic])
    return write_txn_markers_request.WriteTxnMarkersRequest(markers=[marker])


def _elect(version: int) -> Any:
    topic = elect_leaders_request.TopicPartitions(topic="no-topic", partitions=[0])
    return elect_leaders_request.ElectLeadersRequest(topic_partitions=[topic])


def _reassign(version: int) -> Any:
    partition = alter_partition_reassignments_request.ReassignablePartition(replicas=[UNKNOWN_ID])
    topic = alter_partition_reassignments_request.ReassignableTopic(name="no-topic", partitions=[partition])
    return alter_partition_reassignments_request.AlterPartitionReassignmentsRequest(topics=[topic])


def _add_voter(version: int) -> Any:
    listener = add_raft_voter_request.Listener(name="CONTROLLER", host="127.0.0.1", port=9)
    return add_raft_voter_request.AddRaftVoterRequest(
        cluster_id=STRANGE_CLUSTER,
        timeout_ms=1000,
        voter_id=UNKNOWN_ID,
        voter_directory_id=STRANGE_ID,
        listeners=[listener],
    )


def _remove_voter(version: int) -> Any:
    return remove_raft_voter_request.RemoveRaftVoterRequest(
        cluster_id=STRANGE_CLUSTER, voter_id=UNKNOWN_ID, voter_directory_id=STRANGE_ID
    )


Asked = tuple[Callable[[int], Any], set[ErrorCode]]

# The right answer of a coordinator that exists, of one that is elsewhere, and of one that is not made yet.
_NOT_HERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_NO_PRODUCER = {ErrorCode.INVALID_PRODUCER_ID_MAPPING, *_NOT_HERE}
_NO_VOTER = {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION}

ON_THE_BROKERS_LISTENER: dict[ApiKey, Asked] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (_add_partitions, {*_NO_PRODUCER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        lambda version: add_offsets_to_txn_request.AddOffsetsToTxnRequest(
            transactional_id="unknown", producer_id=UNKNOWN_ID, group_id="no-group"
        ),
        _NO_PRODUCER,
    ),
    ApiKey.END_TXN: (
        lambda version: end_txn_request.EndTxnRequest(transactional_id="unknown", producer_id=UNKNOWN_ID),
        _NO_PRODUCER,
    ),
    ApiKey.WRITE_TXN_MARKERS: (_markers, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ApiKey.TXN_OFFSET_COMMIT: (_txn_offset_commit, {*_NO_PRODUCER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ApiKey.ELECT_LEADERS: (_elect, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_reassign, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda version: list_partition_reassignments_request.ListPartitionReassignmentsRequest(topics=None),
        {NONE},
    ),
    ApiKey.UNREGISTER_BROKER: (
        lambda version: unregister_broker_request.UnregisterBrokerRequest(broker_id=UNKNOWN_ID),
        {ErrorCode.BROKER_ID_NOT_REGISTERED},
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        lambda version: describe_transactions_request.DescribeTransactionsRequest(transactional_ids=["unknown"]),
        {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, *_NOT_HERE},
    ),
    ApiKey.LIST_TRANSACTIONS: (lambda version: list_transactions_request.ListTransactionsRequest(), {NONE}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        lambda version: consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
            group_id="no-group", member_id="unknown", member_epoch=5
        ),
        {ErrorCode.GROUP_ID_NOT_FOUND, *_NOT_HERE},
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        lambda version: consumer_group_describe_request.ConsumerGroupDescribeRequest(group_ids=["no-group"]),
        {ErrorCode.GROUP_ID_NOT_FOUND, *_NOT_HERE},
    ),
    ApiKey.ADD_RAFT_VOTER: (_add_voter, _NO_VOTER),
    ApiKey.REMOVE_RAFT_VOTER: (_remove_voter, _NO_VOTER),
}


def _vote(version: int) -> Any:
    partition = vote_request.PartitionData(replica_epoch=1000, replica_id=UNKNOWN_ID, pre_vote=version >= 2)
    topic = vote_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return vote_request.VoteRequest(cluster_id=STRANGE_CLUSTER, topics=[topic])


def _begin_epoch(version: int) -> Any:
    partition = begin_quorum_epoch_request.PartitionData(leader_id=UNKNOWN_ID, leader_epoch=1000)
    topic = begin_quorum_epoch_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return begin_quorum_epoch_request.BeginQuorumEpochRequest(cluster_id=STRANGE_CLUSTER, topics=[topic])


def _end_epoch(version: int) -> Any:
    partition = end_quorum_epoch_request.PartitionData(leader_id=UNKNOWN_ID, leader_epoch=1000)
    topic = end_quorum_epoch_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return end_quorum_epoch_request.EndQuorumEpochRequest(cluster_id=STRANGE_CLUSTER, topics=[topic])


def _fetch_metadata(version: int) -> Any:
    return fetch_request.FetchRequest(cluster_id=STRANGE_CLUSTER, max_wait_ms=0)


def _fetch_snapshot(version: int) -> Any:
    partition = fetch_snapshot_request.PartitionSnapshot()
    topic = fetch_snapshot_request.TopicSnapshot(name="__cluster_metadata", partitions=[partition])
    return fetch_snapshot_request.FetchSnapshotRequest(cluster_id=STRANGE_CLUSTER, topics=[topic])


def _registration(version: int) -> Any:
    return broker_registration_request.BrokerRegistrationRequest(
        broker_id=UNKNOWN_ID, cluster_id=STRANGE_CLUSTER, incarnation_id=STRANGE_ID, rack=None
    )


_STRANGE_CLUSTER = {ErrorCode.INCONSISTENT_CLUSTER_ID}
_STRANGE_BROKER = {ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH}

ON_THE_CONTROLLERS_LISTENER: dict[ApiKey, Asked] = {
    ApiKey.FETCH: (_fetch_metadata, _STRANGE_CLUSTER),
    ApiKey.VOTE: (_vote, _STRANGE_CLUSTER),
    ApiKey.BEGIN_QUORUM_EPOCH: (_begin_epoch, _STRANGE_CLUSTER),
    ApiKey.END_QUORUM_EPOCH: (_end_epoch, _STRANGE_CLUSTER),
    ApiKey.FETCH_SNAPSHOT: (_fetch_snapshot, _STRANGE_CLUSTER),
    ApiKey.ALTER_PARTITION: (
        lambda version: alter_partition_request.AlterPartitionRequest(broker_id=UNKNOWN_ID),
        _STRANGE_BROKER,
    ),
    ApiKey.ENVELOPE: (
        lambda version: envelope_request.EnvelopeRequest(request_data=b"\x00", client_host_address=b"\x7f\x00\x00\x01"),
        {
            ErrorCode.INVALID_REQUEST,
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        },
    ),
    ApiKey.BROKER_REGISTRATION: (_registration, _STRANGE_CLUSTER),
    ApiKey.BROKER_HEARTBEAT: (
        lambda version: broker_heartbeat_request.BrokerHeartbeatRequest(broker_id=UNKNOWN_ID),
        _STRANGE_BROKER,
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: (
        lambda version: allocate_producer_ids_request.AllocateProducerIdsRequest(broker_id=UNKNOWN_ID),
        _STRANGE_BROKER,
    ),
    ApiKey.CONTROLLER_REGISTRATION: (
        lambda version: controller_registration_request.ControllerRegistrationRequest(
            controller_id=UNKNOWN_ID, incarnation_id=STRANGE_ID
        ),
        {ErrorCode.UNKNOWN_CONTROLLER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.INVALID_REQUEST},
    ),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (
        lambda version: assign_replicas_to_dirs_request.AssignReplicasToDirsRequest(broker_id=UNKNOWN_ID),
        _STRANGE_BROKER,
    ),
    ApiKey.UPDATE_RAFT_VOTER: (
        lambda version: update_raft_voter_request.UpdateRaftVoterRequest(
            cluster_id=STRANGE_CLUSTER, voter_id=UNKNOWN_ID, voter_directory_id=STRANGE_ID
        ),
        _NO_VOTER,
    ),
}
