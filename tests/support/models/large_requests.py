"""Administrators' requests of any number of entries, of topics and users that mostly do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import alter_client_quotas_request as quotas
from odradek.protocol.messages import alter_configs_request, incremental_alter_configs_request
from odradek.protocol.messages import alter_partition_reassignments_request as moves
from odradek.protocol.messages import alter_user_scram_credentials_request as scram
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC, READ, ALLOW, LITERAL = 2, 3, 3, 3
TIMEOUT_MS = 60_000


def alter_configs(count: int) -> alter_configs_request.AlterConfigsRequest:
    """All settings but one are of one resource."""
    entry = alter_configs_request.AlterableConfig(name="x", value="1")
    return alter_configs_request.AlterConfigsRequest(
        resources=[
            alter_configs_request.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[entry] * some)
            for name, some in (("t", count - 1), ("u", 1))
        ]
    )


def incremental_alter_configs(count: int) -> incremental_alter_configs_request.IncrementalAlterConfigsRequest:
    """One setting of each resource."""
    return incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=f"t{number}",
                configs=[incremental_alter_configs_request.AlterableConfig(name="x", value="1")],
            )
            for number in range(count)
        ]
    )


def alter_client_quotas(count: int) -> quotas.AlterClientQuotasRequest:
    """One quota of each user."""
    return quotas.AlterClientQuotasRequest(
        entries=[
            quotas.EntryData(
                entity=[quotas.EntityData(entity_type="user", entity_name=f"u{number}")],
                ops=[quotas.OpData(key="producer_byte_rate", value=1.0)],
            )
            for number in range(count)
        ]
    )


def alter_credentials(count: int) -> scram.AlterUserScramCredentialsRequest:
    """Half of them are deletions."""
    half = count // 2
    return scram.AlterUserScramCredentialsRequest(
        deletions=[scram.ScramCredentialDeletion(name=f"a{number}", mechanism=1) for number in range(half)],
        upsertions=[
            scram.ScramCredentialUpsertion(
                name=f"b{number}", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
            )
            for number in range(count - half)
        ],
    )


def create_partitions(count: int) -> CreatePartitionsRequest:
    """One more partition of each topic."""
    topics = [CreatePartitionsTopic(name=f"t{number}", count=2, assignments=None) for number in range(count)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def delete_topics(count: int) -> DeleteTopicsRequest:
    """Topics by their names."""
    return DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(count)], timeout_ms=TIMEOUT_MS)


def alter_reassignments(count: int) -> moves.AlterPartitionReassignmentsRequest:
    """Partitions of one topic."""
    partitions = [moves.ReassignablePartition(partition_index=number, replicas=[1]) for number in range(count)]
    topics = [moves.ReassignableTopic(name="t", partitions=partitions)]
    return moves.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def elect_leaders(count: int) -> ElectLeadersRequest:
    """Partitions of one topic."""
    partitions = TopicPartitions(topic="t", partitions=list(range(count)))
    return ElectLeadersRequest(topic_partitions=[partitions], timeout_ms=TIMEOUT_MS)


def create_acls(count: int) -> CreateAclsRequest:
    """An ACL of each topic."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=TOPIC,
                resource_name=f"t{number}",
                resource_pattern_type=LITERAL,
                principal="User:a",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for number in range(count)
        ]
    )


def delete_acls(count: int) -> DeleteAclsRequest:
    """A filter for each ACL that `create_acls` creates."""
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=TOPIC,
                resource_name_filter=f"t{number}",
                pattern_type_filter=LITERAL,
                principal_filter="User:a",
                host_filter="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for number in range(count)
        ]
    )


def write_txn_markers(count: int) -> WriteTxnMarkersRequest:
    """Markers of one producer in partitions of one topic."""
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count)))
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    return WriteTxnMarkersRequest(markers=[marker])


# Of each: the API, its version, and a function of the number of entries.
BOUNDED: dict[str, tuple[ApiKey, int, Callable[[int], Any]]] = {
    "AlterConfigs": (ApiKey.ALTER_CONFIGS, 2, alter_configs),
    "IncrementalAlterConfigs": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs),
    "AlterClientQuotas": (ApiKey.ALTER_CLIENT_QUOTAS, 1, alter_client_quotas),
    "AlterUserScramCredentials": (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, alter_credentials),
    "CreatePartitions": (ApiKey.CREATE_PARTITIONS, 3, create_partitions),
    "DeleteTopics": (ApiKey.DELETE_TOPICS, 5, delete_topics),
    "AlterPartitionReassignments": (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, alter_reassignments),
    "ElectLeaders": (ApiKey.ELECT_LEADERS, 2, elect_leaders),
    "CreateAcls": (ApiKey.CREATE_ACLS, 3, create_acls),
    "DeleteAcls": (ApiKey.DELETE_ACLS, 3, delete_acls),
}
