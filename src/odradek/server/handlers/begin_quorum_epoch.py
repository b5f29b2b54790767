"""BeginQuorumEpoch: key 53, versions 0-1, on controller listeners. A leader announces its leadership and its endpoints
(KIP-595).

Behaviour: see `RaftDriver.begin_quorum_epoch`. An old epoch is FENCED_LEADER_EPOCH, a second leader of one epoch
INVALID_REQUEST.

Versions: 1 directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from odradek.protocol.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 1


def handle(context: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    """The driver's response, without fields that the version does not have."""
    answer = context.broker.quorum.begin_quorum_epoch(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
