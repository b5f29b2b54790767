"""SyncGroup: API key 14, versions 0-5.

Behaviour: the leader hands in the assignment of a generation, every member gets its own; parked until it is stored.

A classic member of a consumer group (KIP-848) gets its assignment at once.

Version notes: 3: group.instance.id (KIP-345). 4: flexible. 5: protocol type and name must be there and are checked
(KIP-559).
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.server.context import RequestContext

PROTOCOL_NAME_VERSION = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Synchronize, and answer with the member's assignment."""
    named = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_NAME_VERSION and not named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    response: SyncGroupResponse = await context.broker.coordinator.sync_group(request, caller)
    return response
