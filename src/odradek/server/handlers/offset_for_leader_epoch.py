"""OffsetForLeaderEpoch: key 23, versions 2-4.

Behaviour: the largest leader epoch in this leader's log that is not above the requested one, and its end offset
(KIP-101, KIP-279); -1 if there is none. Consumers detect by it that records which they have read were truncated.

Versions: 2 current leader epoch (KIP-320); 3 replica id; 4 flexible.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, first_step_at_once
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.server.authorization import may_describe
from odradek.server.context import RequestContext


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """The end of an epoch for each partition."""
    return first_step_at_once(_respond(context, request))


def _respond(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    image = context.broker.image
    response, turns = OffsetForLeaderEpochResponse(), Turns(PARTITIONS_PER_TURN)
    is_node = context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    for topic in request.topics:
        answers = []
        is_forbidden = not is_node and not may_describe(context, topic.topic)
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            answers.append(answer)
            try:
                if is_forbidden:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = context.broker.replicas.find(topic.topic, wanted.partition, image)
                partition.check_leader(wanted.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            except ApiError as error:
                answer.error_code = error.code
            if turns.fill():
                yield
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        if turns.fill():
            yield
    return response
