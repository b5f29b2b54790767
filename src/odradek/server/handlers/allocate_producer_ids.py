"""AllocateProducerIds: key 67, version 0, on the controller's listener. A block of producer ids for a broker (KIP-730).

A block is recorded before it is returned, so that no id is allocated twice.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    """The next block."""
    try:
        return await context.broker.controller.request(request, AllocateProducerIdsResponse, context)
    except ApiError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
