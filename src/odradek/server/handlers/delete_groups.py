"""DeleteGroups: API key 42, versions 0-3 (KIP-229).

Behaviour: removes groups without members, with their offsets.

Version notes: 2: flexible. 3: a message beside the error.
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import may_on_groups


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group that is empty."""
    may = await may_on_groups(context, AclOperation.DELETE, request.groups_names)
    refused = [
        DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for name, allowed in may.items()
        if not allowed
    ]
    results = await context.broker.coordinator.delete_groups([name for name in request.groups_names if may[name]])
    return DeleteGroupsResponse(results=[*refused, *results])
