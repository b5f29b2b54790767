"""DescribeQuorum: key 55, versions 0-2. Leader, voters and observers of the metadata log (KIP-595, KIP-836, KIP-853).

Versions: 1 times of the replicas' fetches; 2 directory ids, endpoints, error messages.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import METADATA_TOPIC
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.protocol.declare import NIL_UUID
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_request import TopicData as TopicRequest
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData, TopicData
from odradek.server.context import RequestContext

_FIRST_WITH_DIRECTORIES = 2


async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum's one partition; any other is unknown."""
    if not _is_of_quorum(request.topics):
        return await _unknown(request)
    try:
        response = await context.broker.controller.request(request, DescribeQuorumResponse, context)
    except ApiError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    if context.api_version < _FIRST_WITH_DIRECTORIES:
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = NIL_UUID
    return response


def _is_of_quorum(topics: list[TopicRequest]) -> bool:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    return (topics[0].topic_name, topics[0].partitions[0].partition_index) == (METADATA_TOPIC, 0)


async def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    response, turns = DescribeQuorumResponse(error_message=None), Turns(PARTITIONS_PER_TURN)
    for topic in request.topics:
        answers: list[PartitionData] = []
        response.topics.append(TopicData(topic_name=topic.topic_name, partitions=answers))
        await turns.spend()
        for partition in topic.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(
                PartitionData(partition_index=partition.partition_index, error_code=code, error_message=None)
            )
            await turns.spend()
    return response
