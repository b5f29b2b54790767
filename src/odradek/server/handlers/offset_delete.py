"""OffsetDelete: API key 47, version 0 (KIP-496).

Behaviour: removes committed offsets of topics that no member of the group consumes. Topics and partitions that do not
exist are refused one by one.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import Turns
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import PARTITIONS_PER_TURN


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete what may be deleted, and merge the answers in the order of the request."""
    image, turns = context.broker.image, Turns(PARTITIONS_PER_TURN)
    answers: list[OffsetDeleteResponseTopic] = []
    known: list[OffsetDeleteRequestTopic] = []
    for asked in request.topics:
        answer = OffsetDeleteResponseTopic(name=asked.name)
        answers.append(answer)
        topic = image.topic(asked.name)
        existing = OffsetDeleteRequestTopic(name=asked.name)
        known.append(existing)
        for each in asked.partitions:
            if topic is not None and each.partition_index in topic.partitions:
                existing.partitions.append(each)
            else:
                answer.partitions.append(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                )
            await turns.spend()
    request.topics = known
    try:
        deleted = await context.broker.coordinator.offset_delete(request)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    for answer, done in zip(answers, deleted.topics, strict=True):
        answer.partitions += done.partitions
        await turns.spend()
    return OffsetDeleteResponse(topics=answers)
