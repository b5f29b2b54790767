"""AlterPartitionReassignments: key 45, versions 0-1. Moves replicas between brokers, or ends a move (KIP-455).

The controller decides; the response waits until this broker's image has the reassignments.
ListPartitionReassignments shows when they are complete.

Permissions: Alter on the cluster.

Versions: 1 can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.server.authorization import check_cluster
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition moves, stops moving, or is refused on its own."""
    try:
        check_cluster(context, AclOperation.ALTER)
        response = await context.broker.controller.request(request, AlterPartitionReassignmentsResponse, context)
    except ApiError as error:
        return await _refused(request, error)
    wanted = {
        (topic.name, each.partition_index): each.replicas for topic in request.topics for each in topic.partitions
    }
    begun = [
        (topic.name, result.partition_index)
        for topic in response.responses
        for result in topic.partitions
        if not result.error_code
    ]

    def seen(image: MetadataImage) -> bool:
        for name, number in begun:
            partition = image.partition(name, number)
            if partition is None:
                continue
            replicas = wanted[name, number]
            if partition.reassigning if replicas is None else not set(replicas) <= set(partition.replicas):
                return False
        return True

    await wait_until_seen(context.broker.publisher, seen)
    return response


async def _refused(request: AlterPartitionReassignmentsRequest, error: ApiError) -> AlterPartitionReassignmentsResponse:
    """The error for the whole and for each partition, as Kafka has it in both places."""
    code, text = error.code, error.message or None
    turns, topics = Turns(PARTITIONS_PER_TURN), []
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        topics.append(result)
        await turns.spend()
        for each in topic.partitions:
            result.partitions.append(
                ReassignablePartitionResponse(partition_index=each.partition_index, error_code=code, error_message=text)
            )
            await turns.spend()
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=topics)
