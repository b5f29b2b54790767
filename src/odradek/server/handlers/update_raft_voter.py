"""UpdateRaftVoter: key 82, version 0, on controller listeners. A voter updates its endpoints (KIP-853).

Behaviour: see `VoterChanges.update`. A voter sends it to the leader if the voter set has outdated endpoints of it.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.update_raft_voter_request import UpdateRaftVoterRequest
from odradek.protocol.messages.update_raft_voter_response import UpdateRaftVoterResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    """Update the voter, or return an error with the leader."""
    try:
        return await context.broker.quorum.changes.update(request)
    except ApiError as error:
        return UpdateRaftVoterResponse(error_code=error.code)
