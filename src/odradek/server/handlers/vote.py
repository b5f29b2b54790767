"""Vote: key 52, versions 0-2, on controller listeners. A candidate, or prospective candidate, requests this node's
vote.

Behaviour: see `RaftDriver.vote`: a granted vote is durable before the response. A candidate that is no voter of a
static quorum gets INCONSISTENT_VOTER_SET, another cluster INCONSISTENT_CLUSTER_ID, a request for another voter
INVALID_VOTER_KEY, an old epoch FENCED_LEADER_EPOCH; none of these changes anything (KIP-595).

Versions: 1 directory ids, the leader's endpoint in the answer (KIP-853); 2 pre-vote (KIP-996).
"""

from __future__ import annotations

from odradek.protocol.messages.vote_request import VoteRequest
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 1


def handle(context: RequestContext, request: VoteRequest) -> VoteResponse:
    """The driver's response, without fields that the version does not have."""
    answer = context.broker.quorum.vote(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
