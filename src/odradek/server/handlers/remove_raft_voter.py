"""RemoveRaftVoter: key 81, version 0. Makes a voter of the quorum an observer (KIP-853).

Behaviour: see `VoterChanges.remove`. A broker passes it on to the active controller. A leader that removes itself leads
until that is committed. The directory id must be the voter's: VOTER_NOT_FOUND; the last voter stays: INVALID_REQUEST.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Forward the request to the active controller."""
    try:
        return await context.broker.controller.request(request, RemoveRaftVoterResponse, context)
    except ApiError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message or None)
