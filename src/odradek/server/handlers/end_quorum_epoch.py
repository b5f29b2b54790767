"""EndQuorumEpoch: key 54, versions 0-1, on controller listeners. A leader says that it leads no more (KIP-595).

Behaviour: see `RaftDriver.end_quorum_epoch`: the first of its preferred successors stands for election at once, the
others after it, one by one.

Versions: 1 directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from odradek.protocol.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 1


def handle(context: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The driver's answer, without what the version has no place for."""
    answer = context.broker.quorum.end_quorum_epoch(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
