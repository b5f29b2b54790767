"""AlterConfigs: key 33, versions 0-2. Replaces all settings of a resource: omitted settings return to their defaults.

Permissions: AlterConfigs on the topic or the group, or on the cluster for all else.

The controller decides. Versions: 2 flexible. Old tools send it; newer ones send IncrementalAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.errors import ErrorCode
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from odradek.server.config_changes import alter_configs, check_connections
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set, or only check, each resource on its own."""

    async def decide_here(resource: AlterConfigsResource) -> bool:
        await check_connections(context, resource, lambda stored: _changes(resource, stored))
        return False

    return await alter_configs(context, request, AlterConfigsResponse, _answer, decide_here, ResourceType.BROKER_LOGGER)


def _changes(resource: AlterConfigsResource, stored: Mapping[str, str]) -> dict[str, str | None]:
    given = {each.name: each.value for each in resource.configs if each.value is not None}
    return {**dict.fromkeys(stored), **given}


def _answer(resource: AlterConfigsResource, code: ErrorCode, text: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
