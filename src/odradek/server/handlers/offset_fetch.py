"""OffsetFetch: API key 9, versions 1-10.

Behaviour: the committed offsets of a group, -1 where there is none; of all its partitions where topics are null.

Permissions: Describe on the group and on each topic; a response with all topics omits those without it.

Version notes: 2: all topics, an error for the whole answer. 5: leader epoch (KIP-320). 6: flexible. 7: require_stable
(KIP-447). 8: many groups at once (KIP-709). 9: member id and epoch, for the newer protocol alone (KIP-848). 10: topics
by id.
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.server.authorization import is_listed, may_describe, refusal
from odradek.server.context import RequestContext

TOP_LEVEL_ERROR_VERSION = 2
BATCH_VERSION = 8
TOPIC_ID_VERSION = 10


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Fetch for one group, or for each of many."""
    if context.api_version >= BATCH_VERSION:
        groups = [await _fetch(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    topics = request.topics
    single = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics],
    )
    group = await _fetch(context, single, request.require_stable)
    if group.error_code and context.api_version < TOP_LEVEL_ERROR_VERSION:
        refused = [_refused(each, group.error_code) for each in single.topics or []]
        return OffsetFetchResponse(topics=[_old_topic(each) for each in refused])
    return OffsetFetchResponse(error_code=group.error_code, topics=[_old_topic(each) for each in group.topics])


async def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    code = refusal(context, AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id)
    if code is not None:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    image = context.broker.image
    by_id = context.api_version >= TOPIC_ID_VERSION
    if group.topics is None:
        response: OffsetFetchResponseGroup = await context.broker.coordinator.offset_fetch(group, require_stable)
        response.topics = [each for each in response.topics if is_listed(context, each.name)]
        _name_ids(image, response, by_id)
        return response
    requested = group.topics
    known: list[OffsetFetchRequestTopics] = []
    refused: dict[int, ErrorCode] = {}
    turns = Turns(PARTITIONS_PER_TURN)
    for place, each in enumerate(requested):
        topic = image.topics_by_id.get(each.topic_id) if by_id else image.topic(each.name)
        if topic is None and by_id:
            refused[place] = ErrorCode.UNKNOWN_TOPIC_ID
        elif not may_describe(context, each.name if topic is None else topic.name):
            refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            known.append(each)  # committed offsets stay readable while a topic is deleted
        else:
            known.append(
                OffsetFetchRequestTopics(
                    name=topic.name, topic_id=topic.topic_id, partition_indexes=each.partition_indexes
                )
            )
        await turns.spend()
    forward = OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known
    )
    response = await context.broker.coordinator.offset_fetch(forward, require_stable)
    if response.error_code:
        return response
    found = iter(response.topics)
    response.topics = []
    for place, each in enumerate(requested):
        answer = _refused(each, refused[place]) if place in refused else next(found)
        response.topics.append(answer)
        await turns.spend(1 + (len(answer.partitions) if place in refused else 0))
    return response


def _name_ids(image: MetadataImage, response: OffsetFetchResponseGroup, by_id: bool) -> None:
    """Set the topic ids in versions with ids, and omit deleted topics, which have none."""
    if not by_id:
        return
    for answer in response.topics:
        topic = image.topic(answer.name)
        if topic is not None:
            answer.topic_id = topic.topic_id
    response.topics = [answer for answer in response.topics if image.topic(answer.name) is not None]


def _refused(requested: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
            for index in requested.partition_indexes
        ],
    )


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )
