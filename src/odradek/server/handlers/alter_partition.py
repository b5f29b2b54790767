"""AlterPartition: key 56, versions 2-3, on the controller's listener. A leader changes its in-sync set (KIP-497).

Versions: 2 topic ids and the leader's recovery state (KIP-704); 3 epochs of the brokers in the set (KIP-903).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Change in-sync sets, each partition on its own."""
    try:
        return await context.broker.controller.request(request, AlterPartitionResponse, context)
    except ApiError as error:
        return AlterPartitionResponse(error_code=error.code)
