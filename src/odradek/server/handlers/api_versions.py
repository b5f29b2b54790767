"""ApiVersions: key 18, versions 0-5. The first request of most clients.

Behaviour: lists the APIs that this listener serves, and the finalized features of the cluster. The response to an
unknown version is in version 0, with UNSUPPORTED_VERSION (by the connection, before this handler).

Versions: 3 flexible, but the response's header stays at 0, so that every client can read it (KIP-511); names of client
software; features (KIP-584). Before 4 a feature with the lowest level 0 is shown from 1 on, which older clients require
(KIP-1022). 5 has the cluster id and node id that the client expects; if they differ, it gets REBOOTSTRAP_REQUIRED
(KIP-1242).

Produce is advertised from version 0, see its handler.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odradek.common.errors import ErrorCode
from odradek.metadata.features import KRAFT_VERSION, offered_features
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from odradek.server.context import RequestContext

# Clients push no metrics if these are not shown anywhere.
_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The APIs of this listener."""
    version = context.api_version
    if version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.match(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software = " ".join(names)
    image = context.broker.image
    if version >= 5:
        other_cluster = request.cluster_id is not None and request.cluster_id != context.broker.cluster_id
        other_node = request.node_id >= 0 and request.node_id != context.broker.node_id
        if other_cluster or other_node:
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    routes = context.broker.routes[context.connection.listener.scope]
    lowest_shown = 0 if version >= 4 else 1
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=route.advertised_min, max_version=route.versions.last)
            for key, route in sorted(routes.items())
            if context.broker.telemetry.is_on or key not in _TELEMETRY
        ],
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=max(levels.min_level, lowest_shown), max_version=levels.max_level
            )
            for name, levels in sorted(offered_features(image.features).items())
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted({**image.features, KRAFT_VERSION: context.broker.publisher.kraft_version}.items())
            if level > 0
        ],
    )
