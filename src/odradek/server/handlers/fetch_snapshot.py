"""FetchSnapshot: key 59, versions 0-1, on controller listeners. A chunk of a metadata snapshot (KIP-630).

Behaviour: see `RaftDriver.fetch_snapshot`. SNAPSHOT_NOT_FOUND if it was removed: the replica fetches again; the leader
if it is another replica; POSITION_OUT_OF_RANGE beyond its end.

Versions: 1 directory ids and the leader's endpoint (KIP-853).
"""

from __future__ import annotations

from odradek.protocol.messages.fetch_snapshot_request import FetchSnapshotRequest
from odradek.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 1


def handle(context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """The driver's response, without fields that the version does not have."""
    answer = context.broker.quorum.fetch_snapshot(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
