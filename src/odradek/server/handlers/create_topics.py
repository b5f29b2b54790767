"""CreateTopics: key 19, versions 2-7. The controller decides; the answer waits until this broker knows the topics.

Versions: 5 flexible, returns partitions, replication factor and configs (KIP-525); -1 for defaults from 4 on (KIP-464);
7 topic ids.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create, or only check."""
    try:
        response = await context.broker.controller.ask(request, CreateTopicsResponse, context)
    except ApiError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=t.name, error_code=error.code, error_message=error.message or None)
                for t in request.topics
            ]
        )
    if not request.validate_only:
        created = [result.name for result in response.topics if not result.error_code]

        def seen(image: MetadataImage) -> bool:
            return all(name in image.topics_by_name for name in created)

        await wait_until_seen(context.broker.publisher, seen)
    return response
