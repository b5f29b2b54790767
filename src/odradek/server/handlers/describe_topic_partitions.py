"""DescribeTopicPartitions: key 75, version 0. Topics page by page, with eligible leader replicas (KIP-966).

Behaviour: topics in the order of their names (all if none is named), partitions from the cursor on; at most
response_partition_limit and max.request.partition.size.limit of them, then a cursor for the next page. The topic of a
cursor must be one of the named topics.

Permissions: Describe on each topic; a list of all topics omits those without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ErrorCode
from odradek.common.topic_names import INTERNAL_TOPICS, is_legal_topic_name
from odradek.common.turns import Turns
from odradek.metadata.acls import AclResourceType
from odradek.metadata.model import NO_LEADER, PartitionImage, TopicImage
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from odradek.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.server.authorization import TOPIC_OPERATIONS, allowed_operations, is_listed, may_describe
from odradek.server.handlers.metadata import holds_online, is_online
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.server.context import RequestContext

TOPICS_PER_TURN = 500


@config
class PageConfig:
    """The limit of one response."""

    partition_limit: int = option(
        "max.request.partition.size.limit",
        default=2000,
        unit="count",
        doc="Maximum partitions in one DescribeTopicPartitions response.",
    )


async def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """One page of partitions."""
    image = context.broker.image
    cursor = request.cursor
    names = _names(context, request)
    if cursor is not None and (cursor.partition_index < 0 or (cursor.topic_name not in names and request.topics)):
        code = ErrorCode.INVALID_REQUEST
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics]
        )
    limit = context.broker.settings.build(PageConfig).partition_limit
    left = max(1, min(request.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    turns = Turns(TOPICS_PER_TURN)
    for name in names:
        await turns.spend()
        if cursor is not None and name < cursor.topic_name:
            continue
        topic, operations = image.topic(name), 0
        if may_describe(context, name):
            operations = allowed_operations(context, AclResourceType.TOPIC, name, TOPIC_OPERATIONS)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=code))
            continue
        if topic is None:
            response.topics.append(_unknown(name, operations))
            continue
        numbers = _numbers(topic, request)
        if numbers and left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[0])
            break
        response.topics.append(_topic(image, topic, numbers[:left], operations))
        if len(numbers) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[left])
            break
        left -= len(numbers)
    return response


def _names(context: RequestContext, request: DescribeTopicPartitionsRequest) -> list[str]:
    """The names of the requested topics, or of all that the client may describe."""
    if request.topics:
        return sorted({topic.name for topic in request.topics})
    return sorted(name for name in context.broker.image.topics_by_name if is_listed(context, name))


def _numbers(topic: TopicImage, request: DescribeTopicPartitionsRequest) -> list[int]:
    """The partitions of a topic from where the page begins."""
    cursor = request.cursor
    first = cursor.partition_index if cursor is not None and topic.name == cursor.topic_name else 0
    return [number for number in sorted(topic.partitions) if number >= first]


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=code,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _topic(
    image: MetadataImage, topic: TopicImage, numbers: list[int], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
        partitions=[_partition(image, number, topic.partitions[number]) for number in numbers],
    )


def _partition(
    image: MetadataImage, number: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    offline = partition.leader == NO_LEADER or not is_online(image, partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        partition_index=number,
        leader_id=NO_LEADER if offline else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[replica for replica in partition.replicas if not holds_online(image, partition, replica)],
    )
