"""IncrementalAlterConfigs: key 44, versions 0-1. Changes single settings (KIP-339).

The controller decides, but for the loggers of this node (KIP-412): their levels change here, until the node ends.
Versions: 1 flexible.

Permissions: AlterConfigs on the topic or the group, or on the cluster for all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import change_level, check_level
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.config_changes import alter_configs, check_connections
from odradek.server.context import RequestContext
from odradek.settings.listener_changes import LISTENERS
from odradek.settings.resources import SettingRules, combined_list

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Set, or only check, each resource on its own."""

    own = (int(ResourceType.BROKER), str(context.broker.node_id))
    of_this_broker: list[AlterConfigsResource] = []

    async def decide_here(resource: AlterConfigsResource) -> bool:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _change_loggers(context, resource, validate_only=request.validate_only)
            return True
        rules = context.broker.setting_rules
        if (resource.resource_type, resource.resource_name) == own:
            of_this_broker.append(resource)
        _set_listeners(context, resource)
        await check_connections(context, resource, lambda stored: _changes(resource, stored, rules))
        return False

    response = await alter_configs(context, request, IncrementalAlterConfigsResponse, _answer, decide_here)
    if of_this_broker and not request.validate_only:
        failed = [(each.resource_type, each.resource_name) for each in response.responses if each.error_code]
        await _wait_for_listeners(context, of_this_broker if own not in failed else [])
    return response


async def _wait_for_listeners(context: RequestContext, changed: Iterable[AlterConfigsResource]) -> None:
    """Wait until this broker knows whether it has stored listeners: an APPEND that follows goes by that.

    Args:
        changed: the changes of this broker's own settings.
    """
    own = (int(ResourceType.BROKER), str(context.broker.node_id))
    operations = [each.config_operation for resource in changed for each in resource.configs if each.name == LISTENERS]
    if operations:
        are_stored = operations[-1] != _DELETE
        await wait_until_seen(context.broker.publisher, lambda image: (LISTENERS in image.config(*own)) == are_stored)


def _set_listeners(context: RequestContext, resource: AlterConfigsResource) -> None:
    """Replace APPEND and SUBTRACT by SET where no listeners are stored: only their broker knows those of its file.

    Raises:
        ApiError: INVALID_REQUEST, they are those of another broker.
    """
    stored = context.broker.image.config(ResourceType.BROKER, resource.resource_name)
    if resource.resource_type != ResourceType.BROKER or not resource.resource_name or LISTENERS in stored:
        return
    for each in resource.configs:
        if each.name != LISTENERS or each.value is None or each.config_operation not in (_APPEND, _SUBTRACT):
            continue
        if resource.resource_name != str(context.broker.node_id):
            text = f"only broker {resource.resource_name} knows the {LISTENERS} of its file: send it this change"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        each.value = _combined(resource, each, stored, context.broker.setting_rules)
        each.config_operation = _SET


def _changes(resource: AlterConfigsResource, stored: Mapping[str, str], rules: SettingRules) -> dict[str, str | None]:
    """The changes; the controller validates each of them."""
    changes: dict[str, str | None] = {}
    for each in resource.configs:
        if each.config_operation == _DELETE:
            changes[each.name] = None
        elif each.value is not None and each.config_operation == _SET:
            changes[each.name] = each.value
        elif each.value is not None:
            changes[each.name] = _combined(resource, each, stored, rules)
    return changes


def _combined(
    resource: AlterConfigsResource, change: AlterableConfig, stored: Mapping[str, str], rules: SettingRules
) -> str:
    """The list after an APPEND or a SUBTRACT."""
    old = stored.get(change.name, rules.default(resource.resource_type, change.name) or "")
    return combined_list(old, change.value or "", append=change.config_operation == _APPEND)


def _change_loggers(context: RequestContext, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    """Change levels of this node's loggers; all that are named, or none.

    Raises:
        ApiError: INVALID_REQUEST for those of another node, for one that is named twice; INVALID_CONFIG for a logger or
            a level that is none.
    """
    own = str(context.broker.node_id)
    if resource.resource_name != own:
        text = f"Unexpected broker id, expected {own} but received {resource.resource_name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    levels: dict[str, str | None] = {}
    for change in resource.configs:
        if change.config_operation not in (_SET, _DELETE):
            text = f"a level is set or deleted: config operation {change.config_operation} is neither"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if change.name in levels:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} is given twice")
        levels[change.name] = None if change.config_operation == _DELETE else change.value or ""
    try:
        for name, level in levels.items():
            check_level(name, level)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    for name, level in () if validate_only else levels.items():
        change_level(name, level)


def _answer(resource: AlterConfigsResource, code: ErrorCode, text: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
