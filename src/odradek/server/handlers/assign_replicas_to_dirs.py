"""AssignReplicasToDirs: key 73, version 0. A broker reports which of its log directories hold its replicas (KIP-858).

Only between brokers and the controller.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    """Each partition succeeds or fails on its own."""
    try:
        response = await context.broker.controller.request(request, AssignReplicasToDirsResponse, context)
    except ApiError as error:
        return AssignReplicasToDirsResponse(error_code=error.code)
    return response
