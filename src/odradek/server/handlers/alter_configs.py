"""AlterConfigs: key 33, versions 0-2. Replaces all settings of a resource: what is not named falls back to its default.

Permissions: AlterConfigs on the topic or the group, or on the cluster for all else.

The controller decides. Versions: 2 flexible. Old tools send it; IncrementalAlterConfigs is the better one.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.metadata.acls import AclOperation
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from odradek.server.authorization import check_configs
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set, or only check, each resource on its own."""
    allowed: list[AlterConfigsResource] = []
    refused: list[AlterConfigsResourceResponse] = []
    for each in request.resources:
        try:
            check_configs(context, AclOperation.ALTER_CONFIGS, each.resource_type, each.resource_name)
        except ApiError as error:
            refused.append(_answer(each, error))
        else:
            allowed.append(each)
    if refused and not allowed:
        return AlterConfigsResponse(responses=refused)
    request.resources = allowed
    try:
        response = await context.broker.controller.ask(request, AlterConfigsResponse, context)
    except ApiError as error:
        return AlterConfigsResponse(responses=[*(_answer(each, error) for each in allowed), *refused])
    response.responses += refused
    return response


def _answer(resource: AlterConfigsResource, error: ApiError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
