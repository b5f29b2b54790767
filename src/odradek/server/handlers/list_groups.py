"""ListGroups: API key 16, versions 0-5.

Behaviour: the groups whose partition this broker leads.

Version notes: 3: flexible. 4: filter by state (KIP-518). 5: filter by type (KIP-848).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that pass both filters."""
    try:
        groups = await context.broker.coordinator.list_groups(request.states_filter, request.types_filter)
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    if not context.is_allowed(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        groups = [
            each for each in groups if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.GROUP, each.group_id)
        ]
    return ListGroupsResponse(groups=groups)
