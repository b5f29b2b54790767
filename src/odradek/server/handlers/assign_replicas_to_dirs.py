"""AssignReplicasToDirs: key 73, version 0. A broker reports which of its log directories hold its replicas (KIP-858).

Only between brokers and the controller.
"""

from __future__ import annotations

from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    """Each partition succeeds or fails on its own."""
    try:
        response: AssignReplicasToDirsResponse = await context.broker.controller.assign_replicas_to_dirs(
            request, context
        )
    except Exception as error:
        return AssignReplicasToDirsResponse(error_code=code_of(error)[0])
    return response
