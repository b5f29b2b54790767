"""DescribeGroups: API key 15, versions 0-6.

Behaviour: state, protocol and members of classic groups; an unknown group is "Dead".

From version 5 on a tagged field of our own requests the timelines of the groups
(docs/adr/0007-group-timelines.md).

Version notes: 3: authorized operations (KIP-430). 4: group.instance.id (KIP-345). 5: flexible. 6: GROUP_ID_NOT_FOUND
and a message for an unknown group (KIP-1043).
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.extras import asks_for_timelines, timelines_field
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from odradek.server.authorization import GROUP_OPERATIONS, allowed_operations
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import may_on_groups


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group in the order asked for."""
    may = await may_on_groups(context, AclOperation.DESCRIBE, request.groups)
    requested = [name for name in request.groups if may[name]]
    groups = await context.broker.coordinator.describe_groups(requested, context.api_version)
    groups += [_refused(name) for name, allowed in may.items() if not allowed]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = allowed_operations(
                    context, AclResourceType.GROUP, group.group_id, GROUP_OPERATIONS
                )
    response = DescribeGroupsResponse(groups=groups)
    if asks_for_timelines(request):
        response.unknown_tagged_fields = [timelines_field(await context.broker.coordinator.timelines(requested))]
    return response


def _refused(group_id: str) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message=None)
