"""OffsetCommit: API key 8, versions 2-10.

Behaviour: stores the next offset to read for each partition. Topics and partitions that do not exist are refused one
by one; the rest goes to the group's coordinator.

Permissions: Read on the group and on each topic, checked before the topic's existence.

Version notes: 2-4: a retention of its own. 6: leader epoch (KIP-320). 7: group.instance.id (KIP-345). 8: flexible. 9:
GROUP_ID_NOT_FOUND for a group that does not exist (KIP-848). 10: topics by id.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.coordinator.group.classic.membership import Caller
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.server.authorization import may_read, refusal
from odradek.server.context import RequestContext

TOPIC_ID_VERSION = 10


async def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit for existing partitions, and merge the results in the order of the request."""
    image, turns = context.broker.image, Turns(PARTITIONS_PER_TURN)
    answers: list[OffsetCommitResponseTopic] = []
    group_refusal = refusal(context, AclOperation.READ, AclResourceType.GROUP, request.group_id)
    known: list[tuple[OffsetCommitRequestTopic, OffsetCommitResponseTopic]] = []
    for requested in request.topics:
        answer = OffsetCommitResponseTopic(name=requested.name, topic_id=requested.topic_id)
        answers.append(answer)
        topic = await _authorized_part(context, image, requested, group_refusal, answer, turns)
        if topic.partitions:
            known.append((topic, answer))
    if known:
        request.topics = [topic for topic, _ in known]
        caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
        try:
            committed = await context.broker.coordinator.offset_commit(request, context.api_version, caller)
            for (_, answer), stored in zip(known, committed.topics, strict=True):
                answer.partitions += stored.partitions
                await turns.spend()
        except ApiError as error:
            for topic, answer in known:
                for each in topic.partitions:
                    answer.partitions.append(_refusal(each.partition_index, error.code))
                    await turns.spend()
    return OffsetCommitResponse(topics=answers)


async def _authorized_part(
    context: RequestContext,
    image: MetadataImage,
    requested: OffsetCommitRequestTopic,
    group_refusal: ErrorCode | None,
    answer: OffsetCommitResponseTopic,
    turns: Turns,
) -> OffsetCommitRequestTopic:
    """The part of a topic that exists and may be read, by name and id; the rest is refused in `answer`."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    topic = image.topics_by_id.get(requested.topic_id) if by_id else image.topic(requested.name)
    existing = OffsetCommitRequestTopic(name=requested.name)
    if not requested.partitions:
        await turns.spend()
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = requested.name if topic is None else topic.name
    if group_refusal is not None:
        topic, code = None, group_refusal
    elif (topic is not None or not by_id) and not may_read(context, name):
        topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is not None:
        existing.name, existing.topic_id = topic.name, topic.topic_id
    for each in requested.partitions:
        if topic is not None and each.partition_index in topic.partitions:
            existing.partitions.append(each)
        else:
            answer.partitions.append(_refusal(each.partition_index, code))
        await turns.spend()
    return existing


def _refusal(partition_index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition_index, error_code=code)
