"""DescribeConfigs: key 32, versions 1-4.

Behaviour: settings of topics, of this broker ("" as name: of all brokers together), groups, client metrics and this
broker's loggers, each with the source of its value and, on request, its synonyms. Secrets are never returned. A broker
describes its own settings only, and returns INVALID_REQUEST for those of another broker, as in Kafka. A resource that
is named twice has one result with all requested settings, since the description of a broker is long.

Permissions: DescribeConfigs on the topic or the group, or on the cluster for all else.

Versions: 1 sources and synonyms (KIP-226); 3 types and documentation (KIP-569); 4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import LEVEL_NAMES, logger_levels
from odradek.common.topic_names import is_legal_topic_name
from odradek.common.turns import Turns
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.server.authorization import check_configs
from odradek.server.dynamic_settings import dynamic_layers
from odradek.settings.resources import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.server.context import RequestContext

SETTINGS_PER_TURN = 300


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Each resource on its own, some at a time."""
    response = DescribeConfigsResponse()
    turns = Turns(SETTINGS_PER_TURN)
    for (resource_type, name), wanted in _distinct(request).items():
        result = DescribeConfigsResult(resource_type=resource_type, resource_name=name)
        response.results.append(result)
        try:
            check_configs(context, AclOperation.DESCRIBE_CONFIGS, resource_type, name)
            entries = _entries(context, resource_type, name)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            await turns.spend()
            continue
        result.configs = [
            _reported(entry, request, context.api_version)
            for entry in entries
            if wanted is None or entry.name in wanted
        ]
        await turns.spend(len(entries))
    return response


def _distinct(request: DescribeConfigsRequest) -> dict[tuple[int, str], set[str] | None]:
    """Each resource once, with all requested settings; None for all settings, as for an empty list."""
    found: dict[tuple[int, str], set[str] | None] = {}
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        before = found.get(key, set())
        if before is None or not resource.configuration_keys:
            found[key] = None
        else:
            found[key] = before | set(resource.configuration_keys)
    return found


def _entries(context: RequestContext, resource_type: int, name: str) -> list[ConfigEntry]:
    image, rules = context.broker.image, context.broker.setting_rules
    layers = dynamic_layers(image, context.broker.node_id)
    own = image.config(resource_type, name)
    if resource_type == ResourceType.TOPIC:
        _check_topic(image, name)
        return rules.describe_topic(own, layers)
    if resource_type == ResourceType.BROKER:
        if not name:
            return rules.describe_cluster(layers.cluster)
        _check_own_broker(context, name)
        return rules.describe_broker(layers)
    if resource_type == ResourceType.BROKER_LOGGER:
        _check_own_broker(context, name)
        return _loggers()
    if resource_type == ResourceType.CLIENT_METRICS:
        _check_named("Client metrics subscription", name)
        return rules.describe_client_metrics(own)
    if resource_type == ResourceType.GROUP:
        _check_named("Group", name)
        return rules.describe_group(own, layers)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _check_topic(image: MetadataImage, name: str) -> None:
    if not is_legal_topic_name(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic name")
    if image.topic(name) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _check_named(what: str, name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")


def _check_own_broker(context: RequestContext, name: str) -> None:
    own = context.broker.node_id
    if name != str(own):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or empty string, but received {name}",
        )


def _loggers() -> list[ConfigEntry]:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        ConfigEntry(
            name, level, source, False, False, ConfigType.STRING, (ConfigSynonym(name, level, source),), LEVEL_NAMES
        )
        for name, level in logger_levels().items()
    ]


def _reported(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    described = DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation and version >= 3 else None,
    )
    if request.include_synonyms:
        described.synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in entry.synonyms
        ]
    return described
