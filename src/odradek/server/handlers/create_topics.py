"""CreateTopics: key 19, versions 2-7. The controller decides; the answer waits until this broker knows the topics.

Versions: 5 flexible, returns partitions, replication factor and configs (KIP-525); -1 for defaults from 4 on (KIP-464);
7 topic ids.

Permissions: Create on the cluster or on each topic; the answer has the settings of topics on which the client has
DescribeConfigs.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, built_in_turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.server.authorization import may_here_or_everywhere
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create, or only check."""
    turns, may = Turns(PARTITIONS_PER_TURN), {}
    allowed: list[CreatableTopic] = []
    refused: list[CreatableTopicResult] = []
    for topic in request.topics:
        name = topic.name
        if name not in may:
            may[name] = may_here_or_everywhere(context, AclOperation.CREATE, AclResourceType.TOPIC, name)
        if may[name]:
            allowed.append(topic)
        else:
            refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
        await turns.spend()
    if refused:
        request = replace(request, topics=allowed)
        if not request.topics:
            return CreateTopicsResponse(topics=refused)
    response = await _create(context, request)
    for result in response.topics:
        await turns.spend()
        if not context.is_allowed(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, result.name):
            _hide_settings(result)
    response.topics += refused
    return response


def _refused(topic: CreatableTopic, code: ErrorCode, message: str = "") -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=code, error_message=message or None)


def _hide_settings(result: CreatableTopicResult) -> None:
    result.num_partitions = result.replication_factor = -1
    result.configs = None
    if not result.error_code:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _create(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        response = await context.broker.controller.request(request, CreateTopicsResponse, context)
    except ApiError as error:
        code, text = error.code, error.message
        return CreateTopicsResponse(
            topics=await built_in_turns(request.topics, lambda topic: _refused(topic, code, text))
        )
    if not request.validate_only:
        created = [result.name for result in response.topics if not result.error_code]

        def seen(image: MetadataImage) -> bool:
            return all(name in image.topics_by_name for name in created)

        await wait_until_seen(context.broker.publisher, seen)
    return response
