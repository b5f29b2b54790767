"""IncrementalAlterConfigs: key 44, versions 0-1. Changes single settings (KIP-339).

The controller decides, but for the loggers of this node (KIP-412): their levels change here, until the node ends.
Versions: 1 flexible.

Permissions: AlterConfigs on the topic or the group, or on the cluster for all else.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import change_level, check_level
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.server.authorization import check_configs
from odradek.server.context import RequestContext

_SET, _DELETE = 0, 1


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Set, or only check, each resource on its own."""
    answered: list[AlterConfigsResourceResponse] = []
    others: list[AlterConfigsResource] = []
    for each in request.resources:
        try:
            check_configs(context, AclOperation.ALTER_CONFIGS, each.resource_type, each.resource_name)
        except ApiError as error:
            answered.append(_answer(each, error.code, error.message or None))
            continue
        if each.resource_type == ResourceType.BROKER_LOGGER:
            answered.append(_change_loggers(context, each, validate_only=request.validate_only))
        else:
            others.append(each)
    if answered and not others:
        return IncrementalAlterConfigsResponse(responses=answered)
    forwarded = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
    try:
        response = await context.broker.controller.ask(forwarded, IncrementalAlterConfigsResponse, context)
    except ApiError as error:
        code, text = error.code, error.message or None
        response = IncrementalAlterConfigsResponse(responses=[_answer(each, code, text) for each in others])
    response.responses.extend(answered)
    return response


def _change_loggers(
    context: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    """Change levels of this node's loggers; all that are named, or none."""
    own = str(context.broker.node_id)
    if resource.resource_name != own:
        text = f"Unexpected broker id, expected {own} but received {resource.resource_name}"
        return _answer(resource, ErrorCode.INVALID_REQUEST, text)
    levels: dict[str, str | None] = {}
    for change in resource.configs:
        if change.config_operation not in (_SET, _DELETE):
            text = f"a level is set or deleted: config operation {change.config_operation} is neither"
            return _answer(resource, ErrorCode.INVALID_REQUEST, text)
        if change.name in levels:
            return _answer(resource, ErrorCode.INVALID_REQUEST, f"{change.name} is given twice")
        levels[change.name] = None if change.config_operation == _DELETE else change.value or ""
    try:
        for name, level in levels.items():
            check_level(name, level)
    except ValueError as error:
        return _answer(resource, ErrorCode.INVALID_CONFIG, str(error))
    for name, level in () if validate_only else levels.items():
        change_level(name, level)
    return _answer(resource, ErrorCode.NONE, None)


def _answer(resource: AlterConfigsResource, code: ErrorCode, text: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
