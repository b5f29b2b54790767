"""LeaveGroup: API key 13, versions 0-5.

Behaviour: removes members from a group at once, instead of after their session timeout.

When the last member of the consumer protocol leaves a consumer group, the remaining classic members form a classic
group (group.consumer.migration.policy).

Version notes: 3: many members at once, and static ones by their instance id alone (KIP-345). 4: flexible. 5: the
client's reason (KIP-800).
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.server.context import RequestContext

BATCH_VERSION = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Leave; before version 3 the one member's error is the answer's."""
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    if context.api_version >= BATCH_VERSION:
        response: LeaveGroupResponse = await context.broker.coordinator.leave_group(request, caller)
        return response
    single = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])
    response = await context.broker.coordinator.leave_group(single, caller)
    if response.error_code == ErrorCode.NONE and response.members:
        response.error_code = response.members[0].error_code
    response.members = []
    return response
