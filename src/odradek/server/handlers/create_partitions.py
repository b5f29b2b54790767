"""CreatePartitions: key 37, versions 0-3. The controller decides; the answer waits until this broker knows them.

Versions: 2 flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow topics to the counts asked for."""
    try:
        response = await context.broker.controller.ask(request, CreatePartitionsResponse, context)
    except ApiError as error:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=t.name, error_code=error.code, error_message=error.message or None)
                for t in request.topics
            ]
        )
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in request.topics}
        grown = [result.name for result in response.results if not result.error_code]

        def seen(image: MetadataImage) -> bool:
            topics = ((image.topic(name), counts[name]) for name in grown)
            return all(topic is not None and len(topic.partitions) >= count for topic, count in topics)

        await wait_until_seen(context.broker.publisher, seen)
    return response
