"""AddRaftVoter: key 80, versions 0-1. Makes a controller that follows the quorum one of its voters (KIP-853).

Behaviour: see `VoterChanges.add`. A broker passes it on to the active controller. The answer waits until the new voter
set is committed, by a majority of itself; a replica that has not caught up within the request's time is
REQUEST_TIMED_OUT.

Versions: 1 may be answered once the change is written (ack_when_committed, KIP-1186).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.server.context import RequestContext
from odradek.server.controller_gateway import FORWARDING_TIMEOUT_MS


async def handle(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Forward the request to the active controller."""
    try:
        # A replica that must catch up first may need more time than the timeout of forwarded requests.
        timeout_ms = max(FORWARDING_TIMEOUT_MS, request.timeout_ms)
        return await context.broker.controller.request(request, AddRaftVoterResponse, context, timeout_ms=timeout_ms)
    except ApiError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message or None)
