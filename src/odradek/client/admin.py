"""Administration of topics, settings, brokers and the quorum.

Functions over a `Cluster`. Each sends its request to the right broker, retries retriable errors until the timeout, and
raises ApiError for other errors. Results are Kafka's messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from odradek.client.cluster import Cluster, check
from odradek.client.connection import RequestTimeoutError, UnreachableError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.extras import BROKER_HOST_TAG, links_field, read_links
from odradek.protocol.messages import (
    create_partitions_request,
    create_partitions_response,
    create_topics_request,
    create_topics_response,
    delete_topics_request,
    delete_topics_response,
    describe_configs_request,
    describe_configs_response,
    describe_quorum_request,
    describe_quorum_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
    list_config_resources_request,
    list_config_resources_response,
)
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse

UNSET_COUNT = -1


class ResourceType(IntEnum):
    """The types of resources with settings. Source: Kafka ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """Source: KIP-339."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = UNSET_COUNT,
    replication_factor: int = UNSET_COUNT,
    assignment: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> create_topics_response.CreatableTopicResult:
    """Create a topic; a count of -1 uses the broker's default.

    Args:
        assignment: the brokers of each partition, from partition 0 on; the counts must then be -1.
    Raises:
        ApiError: the topic was not created.
    """
    topic = create_topics_request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            create_topics_request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(assignment)
        ],
        configs=[
            create_topics_request.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    request = create_topics_request.CreateTopicsRequest(
        topics=[topic], timeout_ms=cluster.timeout_ms, validate_only=validate_only
    )

    async def attempt() -> create_topics_response.CreatableTopicResult:
        response = await cluster.request(request, create_topics_response.CreateTopicsResponse)
        (result,) = response.topics
        check(result.error_code, f"topic {name}", result.error_message)
        return result

    return await cluster.retried(attempt)


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic. Raises ApiError."""
    request = delete_topics_request.DeleteTopicsRequest(
        topics=[delete_topics_request.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=cluster.timeout_ms
    )

    async def attempt() -> None:
        # Versions before 6 have names alone.
        connection = await cluster.any_connection()
        if connection.versions.get(delete_topics_request.DeleteTopicsRequest.KEY or 0, (0, 0))[1] < 6:
            request.topics = []
        response = await cluster.request(request, delete_topics_response.DeleteTopicsResponse)
        (result,) = response.responses
        check(result.error_code, f"topic {name}", result.error_message)

    await cluster.retried(attempt)


async def create_partitions(
    cluster: Cluster, name: str, count: int, *, assignment: Sequence[Sequence[int]] = (), validate_only: bool = False
) -> None:
    """Add partitions to a topic.

    Args:
        count: the new total.
        assignment: the brokers of each new partition.
    Raises:
        ApiError: no partition was added.
    """
    assignments = [create_partitions_request.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignment]
    topic = create_partitions_request.CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)
    request = create_partitions_request.CreatePartitionsRequest(
        topics=[topic], timeout_ms=cluster.timeout_ms, validate_only=validate_only
    )

    async def attempt() -> None:
        response = await cluster.request(request, create_partitions_response.CreatePartitionsResponse)
        (result,) = response.results
        check(result.error_code, f"topic {name}", result.error_message)

    await cluster.retried(attempt)


async def describe_configs(
    cluster: Cluster, kind: ResourceType, names: Sequence[str], *, synonyms: bool = False, documentation: bool = False
) -> list[describe_configs_response.DescribeConfigsResult]:
    """The settings of resources of one kind.

    A broker's settings are requested from that broker; "" is the cluster-wide default.

    Raises:
        ApiError: the error of the first resource that failed.
    """
    results = []
    groups: dict[int | None, list[str]] = {}
    for name in names:
        groups.setdefault(_node_for(kind, name), []).append(name)
    for node_id, some in groups.items():
        request = describe_configs_request.DescribeConfigsRequest(
            resources=[
                describe_configs_request.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for name in some
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        response = await cluster.request(request, describe_configs_response.DescribeConfigsResponse, node_id=node_id)
        for result in response.results:
            check(result.error_code, f"{kind.name.lower()} {result.resource_name}", result.error_message)
            results.append(result)
    return results


async def alter_configs(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    changes: Sequence[tuple[str, ConfigOperation, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Change settings of one resource: (key, operation, value) of each. Raises ApiError."""
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs_request.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response = await cluster.request(
            request,
            incremental_alter_configs_response.IncrementalAlterConfigsResponse,
            node_id=_node_for(kind, name),
        )
        (result,) = response.responses
        check(result.error_code, f"{kind.name.lower()} {name or 'default'}", result.error_message)

    await cluster.retried(attempt)


async def list_config_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """The names of the resources of one kind that have settings (KIP-1142). Raises ApiError."""
    request = list_config_resources_request.ListConfigResourcesRequest(resource_types=[kind])
    response = await cluster.request(request, list_config_resources_response.ListConfigResourcesResponse)
    check(response.error_code, f"settings of {kind.name.lower()}s")
    return [found.resource_name for found in response.config_resources if found.resource_type == kind]


async def describe_links(cluster: Cluster) -> dict[int, list[dict[str, Any]]]:
    """The links to other clusters by broker id, as each broker reports them; empty for brokers that do not respond."""
    await cluster.metadata([])

    async def send(node_id: int) -> list[dict[str, Any]]:
        request = DescribeClusterRequest(unknown_tagged_fields=(links_field(),))
        try:
            return read_links(await cluster.request(request, DescribeClusterResponse, node_id=node_id))
        except (UnreachableError, RequestTimeoutError):
            return []

    nodes = sorted(cluster.brokers)
    return dict(zip(nodes, await asyncio.gather(*map(send, nodes)), strict=True))


async def describe_cluster(cluster: Cluster, *, fenced: bool = False) -> DescribeClusterResponse:
    """The cluster's id, controller and brokers; with `fenced` also fenced brokers. Raises ApiError."""
    connection = await cluster.any_connection()
    known = connection.versions.get(DescribeClusterRequest.KEY or 0, (0, 0))[1]
    request = DescribeClusterRequest(
        include_fenced_brokers=fenced and known >= 2, unknown_tagged_fields=((BROKER_HOST_TAG, b""),)
    )
    response = await cluster.request(request, DescribeClusterResponse)
    check(response.error_code, "cluster", response.error_message)
    return response


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Unregister a broker that will not return (KIP-631). Raises ApiError."""
    request = UnregisterBrokerRequest(broker_id=broker_id)

    async def attempt() -> None:
        response = await cluster.request(request, UnregisterBrokerResponse)
        check(response.error_code, f"broker {broker_id}", response.error_message)

    await cluster.retried(attempt)


async def raise_features(cluster: Cluster, levels: Mapping[str, int]) -> None:
    """Raise the finalized levels of features, all or none (KIP-584).

    Raises:
        ApiError: INVALID_UPDATE_VERSION, a level is lower than the present one, or a node does not support it.
    """
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
    request = UpdateFeaturesRequest(feature_updates=updates)

    async def attempt() -> None:
        response = await cluster.request(request, UpdateFeaturesResponse)
        check(response.error_code, "features", response.error_message)
        for result in response.results:
            check(result.error_code, result.feature, result.error_message)

    await cluster.retried(attempt)


async def describe_quorum(cluster: Cluster) -> describe_quorum_response.DescribeQuorumResponse:
    """The voters and observers of the metadata log, from its leader. Raises ApiError."""
    topic = describe_quorum_request.TopicData(
        topic_name=METADATA_TOPIC, partitions=[describe_quorum_request.PartitionData(partition_index=0)]
    )
    request = describe_quorum_request.DescribeQuorumRequest(topics=[topic])

    async def attempt() -> describe_quorum_response.DescribeQuorumResponse:
        response = await cluster.request(request, describe_quorum_response.DescribeQuorumResponse)
        check(response.error_code, "quorum", response.error_message)
        if not response.topics or not response.topics[0].partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "quorum: the response has no metadata log")
        partition = response.topics[0].partitions[0]
        check(partition.error_code, "quorum", partition.error_message)
        return response

    return await cluster.retried(attempt)


def _node_for(kind: ResourceType, name: str) -> int | None:
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name.isdigit():
        return int(name)
    return None
