"""DeleteGroups: API key 42, versions 0-3 (KIP-229).

Behaviour: removes groups without members, with their offsets.

Version notes: 2: flexible. 3: a message beside the error.
"""

from __future__ import annotations

from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_groups_response import DeleteGroupsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group that is empty."""
    return DeleteGroupsResponse(results=await context.broker.coordinator.delete_groups(request.groups_names))
