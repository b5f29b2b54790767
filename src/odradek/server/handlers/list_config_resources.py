"""ListConfigResources: key 74, versions 0-1. Names of things that carry configuration (KIP-1000, KIP-1142).

Versions: 0 lists client metrics subscriptions alone; 1 lists by type: topics, brokers, broker loggers, client metrics
and groups; no type means all.
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse
from odradek.server.context import RequestContext

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """All resources of the requested types."""
    image = context.broker.image
    types = [ResourceType.CLIENT_METRICS] if context.api_version == 0 else request.resource_types or list(_LISTED)
    if any(kind not in _LISTED for kind in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    response = ListConfigResourcesResponse()
    for kind in dict.fromkeys(types):
        if kind == ResourceType.TOPIC:
            names = sorted(image.topics_by_name)
        elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            names = brokers
        else:
            names = sorted(name for resource_type, name in image.configs if resource_type == kind)
        response.config_resources += [ConfigResource(resource_name=name, resource_type=kind) for name in names]
    return response
