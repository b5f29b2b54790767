"""DeleteTopics: key 20, versions 1-6. The controller decides; the answer waits until this broker has let them go.

Versions: 4 flexible; 5 error messages; 6 by name or by topic id (KIP-516).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete by name or id."""
    before = context.broker.image
    try:
        response = await context.broker.controller.ask(request, DeleteTopicsResponse, context)
    except ApiError as error:
        named = [(t.name, t.topic_id) for t in request.topics]
        wanted = named or [(name, DeletableTopicResult().topic_id) for name in request.topic_names]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
                )
                for name, topic_id in wanted
            ]
        )
    known = {result.name: before.topics_by_name.get(result.name or "") for result in response.responses}
    gone = [t.topic_id for result in response.responses if not result.error_code and (t := known[result.name])]

    def seen(image: MetadataImage) -> bool:
        return not any(topic_id in image.topics_by_id for topic_id in gone)

    await wait_until_seen(context.broker.publisher, seen)
    return response
