"""IncrementalAlterConfigs: key 44, versions 0-1. Changes single settings (KIP-339).

The controller decides. Versions: 1 flexible.
"""

from __future__ import annotations

from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Set, or only check, each resource on its own."""
    try:
        response: IncrementalAlterConfigsResponse = await context.broker.controller.incremental_alter_configs(
            request, context
        )
    except Exception as error:
        code, text = code_of(error)
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=text,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            ]
        )
    return response
