"""JoinGroup: API key 11, versions 0-9.

Behaviour: makes a client a member of a group; the response waits for the end of the rebalance.

A classic member may join a consumer group (KIP-848): the coordinator assigns, there is no leader, and the response is
sent at once.

Version notes:
- 0: no rebalance timeout, the session timeout counts. 4: MEMBER_ID_REQUIRED (KIP-394). 5: group.instance.id (KIP-345).
- 6: flexible. 7: protocol type in the answer (KIP-559). 8: the client's reason (KIP-800). 9: skip_assignment (KIP-814).
"""

from __future__ import annotations

from odradek.coordinator.group.classic.membership import Caller
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.server.context import RequestContext

NULLABLE_PROTOCOL_NAME_VERSION = 7


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join, and answer with the generation."""
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    response: JoinGroupResponse = await context.broker.coordinator.join_group(request, caller)
    if context.api_version < NULLABLE_PROTOCOL_NAME_VERSION and response.protocol_name is None:
        response.protocol_name = ""
    return response
