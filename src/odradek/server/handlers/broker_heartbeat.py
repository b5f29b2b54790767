"""BrokerHeartbeat: key 63, versions 0-2, on the controller's listener. Keeps the session of a broker (KIP-631).

Versions: 1 log directories whose disk failed (KIP-858); 2 directories that take no new replicas (KIP-1066).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    """Note that a broker lives, and answer whether it is fenced."""
    try:
        answer = await context.broker.controller.request(request, BrokerHeartbeatResponse, context)
    except ApiError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    if context.broker.liveness is not None:
        context.broker.liveness.heartbeat_received(context.connection, request.broker_id, request.broker_epoch)
    return answer
