"""EndQuorumEpoch: key 54, versions 0-1, on controller listeners. A leader announces that it resigns (KIP-595).

Behaviour: see `RaftDriver.end_quorum_epoch`: the first preferred successor becomes a candidate at once, the others
later, one after the other.

Versions: 1 directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from odradek.protocol.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 1


def handle(context: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The driver's response, without fields that the version does not have."""
    answer = context.broker.quorum.end_quorum_epoch(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
