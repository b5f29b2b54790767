"""ElectLeaders: key 43, versions 0-2. The controller elects preferred leaders, or any that live (KIP-460, KIP-183).

Versions: 0 preferred leaders only, no error for the whole; 1 kinds of election; 2 flexible.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import NO_LEADER
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.server.authorization import check_cluster
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext

_PREFERRED = 0


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer once this broker knows the leaders elected."""
    try:
        check_cluster(context, AclOperation.ALTER)
        response = await context.broker.controller.request(request, ElectLeadersResponse, context)
    except ApiError as error:
        # Version 0 has no place for an error of the whole.
        code = ErrorCode.NONE if context.api_version == 0 else error.code
        return ElectLeadersResponse(error_code=code, replica_election_results=await _all_failed(request, error))
    elected = [
        (topic.topic, result.partition_id)
        for topic in response.replica_election_results
        for result in topic.partition_result
        if not result.error_code
    ]

    def seen(image: MetadataImage) -> bool:
        for name, number in elected:
            topic = image.topic(name)
            partition = None if topic is None else topic.partitions.get(number)
            if partition is None:
                continue
            if request.election_type == _PREFERRED and partition.leader != partition.preferred_leader:
                return False
            if partition.leader == NO_LEADER:
                return False
        return True

    await wait_until_seen(context.broker.publisher, seen)
    return response


async def _all_failed(request: ElectLeadersRequest, error: ApiError) -> list[ReplicaElectionResult]:
    """The error for each partition that was asked for."""
    code, message = error.code, error.message or None
    results: list[ReplicaElectionResult] = []
    turns = Turns(PARTITIONS_PER_TURN)
    for topic in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=topic.topic)
        results.append(result)
        await turns.spend()
        for number in topic.partitions:
            result.partition_result.append(PartitionResult(partition_id=number, error_code=code, error_message=message))
            await turns.spend()
    return results
