"""AlterConfigs: key 33, versions 0-2. Replaces all settings of a resource: what is not named falls back to its default.

The controller decides. Versions: 2 flexible. Old tools send it; IncrementalAlterConfigs is the better one.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set, or only check, each resource on its own."""
    try:
        response = await context.broker.controller.ask(request, AlterConfigsResponse, context)
    except ApiError as error:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message or None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            ]
        )
    return response
