"""Heartbeat: API key 12, versions 0-4.

Behaviour: keeps a member's session; REBALANCE_IN_PROGRESS makes it join again. While the group's partition loads
every heartbeat is answered without error, so that a failover costs no rebalance.

A classic member of a consumer group (KIP-848) gets REBALANCE_IN_PROGRESS as long as another join advances it.

Version notes: 3: group.instance.id (KIP-345). 4: flexible.
"""

from __future__ import annotations

from odradek.coordinator.group.classic.membership import Caller
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Note that the member lives."""
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    response: HeartbeatResponse = await context.broker.coordinator.heartbeat(request, caller)
    return response
