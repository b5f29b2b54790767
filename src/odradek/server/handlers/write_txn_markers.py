"""WriteTxnMarkers: key 27, versions 1-2.

Behaviour: ends transactions in the partitions that this broker leads. Transaction coordinators send it, and
administrators who end a hanging transaction. An existing marker is not written again.

Versions: 1 flexible; 2 the transaction version: markers of version 2 end only transactions with an older epoch
(KIP-890).
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.server.authorization import may_on_cluster
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write the markers; answered when they are committed."""
    may = context.is_allowed(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME)
    if not may and not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return await _refused(request)
    return await context.broker.markers.write(request)


async def _refused(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response, turns = WriteTxnMarkersResponse(), Turns(PARTITIONS_PER_TURN)
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        await turns.spend()
        for topic in marker.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(of_topic)
            await turns.spend()
            for number in topic.partition_indexes:
                of_topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=number, error_code=code))
                await turns.spend()
    return response
