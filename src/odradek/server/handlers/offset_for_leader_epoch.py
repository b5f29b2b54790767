"""OffsetForLeaderEpoch: key 23, versions 2-4.

Behaviour: the largest leader epoch not above the asked one that this leader's log has, and where it ended (KIP-101,
KIP-279). Consumers find out by it that records they read were cut off; -1 where the leader knows no such epoch.

Versions: 2 current leader epoch (KIP-320); 3 replica id; 4 flexible.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.server.authorization import check, may_on_cluster
from odradek.server.context import RequestContext


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """The end of an epoch for each partition."""
    image = context.broker.image
    response = OffsetForLeaderEpochResponse()
    is_node = may_on_cluster(context, AclOperation.CLUSTER_ACTION)
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            answers.append(answer)
            try:
                if not is_node:
                    check(context, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic)
                partition = context.broker.replicas.find(topic.topic, wanted.partition, image)
                partition.check_leader(wanted.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            except ApiError as error:
                answer.error_code = error.code
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response
