"""AlterPartitionReassignments: key 45, versions 0-1. Moves replicas between brokers, or ends a move (KIP-455).

The controller decides; the answer waits until this broker knows what has begun. The end of a move is visible in
ListPartitionReassignments.

Versions: 1 may forbid that the replication factor changes (KIP-860).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition moves, stops moving, or is refused on its own."""
    try:
        response = await context.broker.controller.ask(request, AlterPartitionReassignmentsResponse, context)
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message or None)
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
