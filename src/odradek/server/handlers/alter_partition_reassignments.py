"""AlterPartitionReassignments: key 45, versions 0-1. Moves replicas between brokers, or ends a move (KIP-455).

The controller decides; the answer waits until this broker knows what has begun. The end of a move is visible in
ListPartitionReassignments.

Versions: 1 may forbid that the replication factor changes (KIP-860).
"""

from __future__ import annotations

from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition moves, stops moving, or is refused on its own."""
    try:
        response: AlterPartitionReassignmentsResponse = await context.broker.controller.alter_partition_reassignments(
            request, context
        )
    except Exception as error:
        code, text = code_of(error)
        return AlterPartitionReassignmentsResponse(error_code=code, error_message=text)
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
