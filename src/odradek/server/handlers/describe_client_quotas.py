"""DescribeClientQuotas: key 48, versions 0-1. The client quotas (KIP-546) of this node's metadata.

Each component of the filter has a type of entity, and matches one name, the default, or any name. Entities with further
types match too, unless the filter is strict.
"""

from __future__ import annotations

from enum import IntEnum

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.model import QuotaEntity
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.security.quota.entities import CLIENT_ID, IP, USER
from odradek.server.context import RequestContext


class MatchType(IntEnum):
    """The entities of a type that are asked for."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """The entities that match all components.

    Raises:
        ApiError: INVALID_REQUEST, UNSUPPORTED_VERSION.
    """
    _check(request.components)
    found = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
        )
        for entity, quotas in context.broker.image.client_quotas.items()
        if _matches(entity, request)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=found)


def _check(components: list[ComponentData]) -> None:
    """
    Raises:
        ApiError: as `handle`.
    """
    seen: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type not in set(MatchType):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if (each.match is None) == (each.match_type == MatchType.EXACT):
            what = "without" if each.match is None else "with"
            text = f"Match type {MatchType(each.match_type).name} {what} a name to match."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        text = "Invalid entity filter component combination: IP is not combined with user or client id."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    parts = dict(entity)
    return all(
        each.entity_type in parts and (each.match_type == MatchType.SPECIFIED or parts[each.entity_type] == each.match)
        for each in request.components
    )
