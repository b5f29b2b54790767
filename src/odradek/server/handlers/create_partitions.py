"""CreatePartitions: key 37, versions 0-3. The controller decides; the answer waits until this broker knows them.

Versions: 2 flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).

Permissions: Alter on each topic.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, built_in_turns
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import ForwardedContext, RequestContext
from odradek.settings.links import mirrored_topics


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Increase the partition counts of topics."""
    mirrors: frozenset[str] = frozenset()
    if not _is_a_links(context):
        mirrors = mirrored_topics(context.broker.image.config(ResourceType.BROKER, ""))
    allowed: list[CreatePartitionsTopic] = []
    refused: list[CreatePartitionsTopicResult] = []
    turns, may = Turns(PARTITIONS_PER_TURN), {}
    for topic in request.topics:
        if topic.name not in may:
            may[topic.name] = context.authorize(AclOperation.ALTER, AclResourceType.TOPIC, topic.name)
        if not may[topic.name]:
            refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic.name in mirrors:
            text = "The topic is a mirror: it has as many partitions as its source."
            refused.append(_refused(topic, ErrorCode.INVALID_REQUEST, text))
        else:
            allowed.append(topic)
        await turns.spend()
    if refused:
        request = replace(request, topics=allowed)
        if not request.topics:
            return CreatePartitionsResponse(results=refused)
    response = await _grow(context, request)
    response.results += refused
    return response


def _is_a_links(context: RequestContext) -> bool:
    """Whether a broker itself sent the request, as for a link whose source has more partitions."""
    if not context.on_controller_listener or isinstance(context, ForwardedContext):
        return False
    return context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)


def _refused(topic: CreatePartitionsTopic, code: ErrorCode, message: str = "") -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message or None)


async def _grow(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    try:
        response = await context.broker.controller.request(request, CreatePartitionsResponse, context)
    except ApiError as error:
        code, text = error.code, error.message
        return CreatePartitionsResponse(
            results=await built_in_turns(request.topics, lambda topic: _refused(topic, code, text))
        )
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in request.topics}
        grown = [result.name for result in response.results if not result.error_code]

        def seen(image: MetadataImage) -> bool:
            topics = ((image.topic(name), counts[name]) for name in grown)
            return all(topic is not None and len(topic.partitions) >= count for topic, count in topics)

        await wait_until_seen(context.broker.publisher, seen)
    return response
