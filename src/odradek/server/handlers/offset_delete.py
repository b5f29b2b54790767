"""OffsetDelete: API key 47, version 0 (KIP-496).

Behaviour: removes committed offsets of topics that no member of the group consumes. Topics and partitions that do not
exist are refused one by one.

Permissions: Delete on the group, Read on each topic.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.server.authorization import may_read, refusal
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the permitted offsets, and merge the results in the order of the request."""
    image, turns = context.broker.image, Turns(PARTITIONS_PER_TURN)
    code = refusal(context, AclOperation.DELETE, AclResourceType.GROUP, request.group_id)
    if code is not None:
        return OffsetDeleteResponse(error_code=code)
    answers: list[OffsetDeleteResponseTopic] = []
    known: list[OffsetDeleteRequestTopic] = []
    for requested in request.topics:
        answer = OffsetDeleteResponseTopic(name=requested.name)
        answers.append(answer)
        topic, code = image.topic(requested.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not may_read(context, requested.name):
            topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        existing = OffsetDeleteRequestTopic(name=requested.name)
        known.append(existing)
        if not requested.partitions:
            await turns.spend()
        for each in requested.partitions:
            if topic is not None and each.partition_index in topic.partitions:
                existing.partitions.append(each)
            else:
                answer.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
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
