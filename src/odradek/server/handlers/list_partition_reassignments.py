"""ListPartitionReassignments: key 46, version 0. Which partitions move, from where and to where (KIP-455).

Asked of the controller, which knows it first. Partitions that do not move, or do not exist, are left out.
"""

from __future__ import annotations

from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """What moves, of the partitions named or of all."""
    try:
        response: ListPartitionReassignmentsResponse = await context.broker.controller.list_partition_reassignments(
            request, context
        )
    except Exception as error:
        code, text = code_of(error)
        return ListPartitionReassignmentsResponse(error_code=code, error_message=text)
    return response
