"""DeleteTopics: key 20, versions 1-6. The controller decides; the response waits until this broker's image has no such
topics.

Versions: 4 flexible; 5 error messages; 6 by name or by topic id (KIP-516).

Permissions: Delete on the cluster or on each topic. The response reveals the existence of topics only to
clients with Describe.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, built_in_turns
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.server.authorization import TOPIC_REFUSED, may_describe, may_on_cluster
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete by name or id."""
    if context.broker.authorizer is None:
        return await _delete(context, request)
    named = request.topics or await built_in_turns(request.topic_names, lambda name: DeleteTopicState(name=name))
    allowed: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    image, turns = context.broker.image, Turns(PARTITIONS_PER_TURN)
    for topic in named:
        refusal = _refusal(context, image, topic)
        if refusal is None:
            allowed.append(topic)
        else:
            refused.append(refusal)
        await turns.spend()
    if not allowed:
        return DeleteTopicsResponse(responses=refused)
    response = await _delete(context, _with_topics(request, allowed))
    response.responses += refused
    return response


def _with_topics(request: DeleteTopicsRequest, topics: list[DeleteTopicState]) -> DeleteTopicsRequest:
    """The same request with these topics only."""
    names = [topic.name or "" for topic in topics]
    return replace(request, topics=topics if request.topics else [], topic_names=names if request.topic_names else [])


def _refusal(context: RequestContext, image: MetadataImage, requested: DeleteTopicState) -> DeletableTopicResult | None:
    """The result for a topic that the client may not delete; None if it may, or if there is no such topic."""
    topic = image.topics_by_id.get(requested.topic_id) if requested.name is None else image.topic(requested.name)
    name = requested.name if topic is None else topic.name
    if name is None:
        return DeletableTopicResult(name=None, topic_id=requested.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.is_allowed(AclOperation.DELETE, AclResourceType.CLUSTER, CLUSTER_NAME):
        may_on_cluster(context, AclOperation.DELETE)  # now for the audit log
        return None
    if not may_describe(context, name):
        return DeletableTopicResult(
            name=requested.name, topic_id=requested.topic_id, error_code=code, error_message=TOPIC_REFUSED
        )
    if topic is None or context.authorize(AclOperation.DELETE, AclResourceType.TOPIC, name):
        return None
    return DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=code, error_message=TOPIC_REFUSED)


async def _all_failed(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> DeleteTopicsResponse:
    named = request.topics or await built_in_turns(request.topic_names, lambda name: DeleteTopicState(name=name))
    return DeleteTopicsResponse(
        responses=await built_in_turns(
            named,
            lambda each: DeletableTopicResult(
                name=each.name, topic_id=each.topic_id, error_code=code, error_message=message
            ),
        )
    )


async def _delete(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    before = context.broker.image
    try:
        response = await context.broker.controller.request(request, DeleteTopicsResponse, context)
    except ApiError as error:
        return await _all_failed(request, error.code, error.message or None)
    known = {result.name: before.topics_by_name.get(result.name or "") for result in response.responses}
    gone = [t.topic_id for result in response.responses if not result.error_code and (t := known[result.name])]

    def seen(image: MetadataImage) -> bool:
        return not any(topic_id in image.topics_by_id for topic_id in gone)

    await wait_until_seen(context.broker.publisher, seen)
    return response
