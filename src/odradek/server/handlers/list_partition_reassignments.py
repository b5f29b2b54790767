"""ListPartitionReassignments: key 46, version 0. Which partitions move, from where and to where (KIP-455).

Asked of the controller, which knows it first. Partitions that do not move, or do not exist, are left out.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from odradek.server.context import RequestContext


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The ongoing reassignments of the named partitions, or of all."""
    try:
        response = await context.broker.controller.request(request, ListPartitionReassignmentsResponse, context)
    except ApiError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message or None)
    return response
