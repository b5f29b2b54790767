"""AddRaftVoter: key 80, versions 0-1. Makes a controller that follows the quorum one of its voters (KIP-853).

Behaviour: see `VoterChanges.add`. A broker passes it on to the active controller. The answer waits until the new voter
set is committed, by a majority of itself; a replica that has not caught up within the request's time is
REQUEST_TIMED_OUT.

Versions: 1 may be answered once the change is written (ack_when_committed, KIP-1186).
"""

from __future__ import annotations

from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Ask the active controller."""
    try:
        return await context.broker.controller.add_raft_voter(request, context)
    except Exception as error:
        code, text = code_of(error)
        return AddRaftVoterResponse(error_code=code, error_message=text)
