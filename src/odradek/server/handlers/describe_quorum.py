"""DescribeQuorum: key 55, versions 0-2. Leader, voters and observers of the metadata log (KIP-595, KIP-836, KIP-853).

Versions: 1 times of the replicas' fetches; 2 directory ids, endpoints, error messages.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.declare import NIL_UUID
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData, TopicData
from odradek.server.context import RequestContext

_FIRST_WITH_DIRECTORIES = 2


async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum's one partition; any other is unknown."""
    requested = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if requested != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            error_message=None,
            topics=[
                TopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        PartitionData(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message=None,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
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
