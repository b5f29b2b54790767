"""Fetch on a controller listener: key 1, versions 12-18. Replicas of the metadata log, voters and observers, fetch it.

Behaviour: see `RaftDriver.fetch`: exactly one topic, __cluster_metadata, and its partition 0, else INVALID_REQUEST. The
fetch offset of a voter is its acknowledgement. A response without changes waits up to max_wait_ms for records or a
higher high watermark; a refusal has the leader and its endpoint.

Versions: 12 divergence and snapshots (KIP-595, KIP-630); 13 topic ids; 15 replica state; 16 endpoints; 17 directory ids
(KIP-853); 18 the replica's high watermark, so that it gets a higher one at once (KIP-1166).
"""

from __future__ import annotations

from odradek.metadata.acls import AclOperation
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.server.authorization import check_cluster
from odradek.server.context import RequestContext

_FIRST_WITH_ENDPOINTS = 16


async def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """The driver's response, without fields that the version does not have."""
    check_cluster(context, AclOperation.CLUSTER_ACTION)
    if context.times is not None and max(request.replica_id, request.replica_state.replica_id) >= 0:
        context.times.count_as_follower()
    answer = await context.broker.quorum.fetch(request)
    if context.api_version < _FIRST_WITH_ENDPOINTS:
        answer.node_endpoints = []
    return answer
