"""Administration of client quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.client.cluster import Cluster, check
from odradek.protocol.messages import alter_client_quotas_request as changes
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse

# Entity type → name; None is the default entity.
Entity = Mapping[str, str | None]
_EXACT, _DEFAULT = 0, 1


async def list_quotas(cluster: Cluster, entity: Entity) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """The quotas of all entities that include these parts. Raises ApiError."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]

    async def attempt() -> DescribeClientQuotasResponse:
        asked = DescribeClientQuotasRequest(components=components)
        response = await cluster.request(asked, DescribeClientQuotasResponse)
        check(response.error_code, "quotas", response.error_message)
        return response

    found = (await cluster.retried(attempt)).entries or []
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in found
    ]


async def set_quotas(cluster: Cluster, entity: Entity, values: Mapping[str, float]) -> None:
    """Set quotas of one entity; others stay. Raises ApiError."""
    await _alter(cluster, entity, [changes.OpData(key=key, value=value) for key, value in values.items()])


async def remove_quotas(cluster: Cluster, entity: Entity, keys: Sequence[str]) -> None:
    """Remove quotas of one entity. Raises ApiError."""
    await _alter(cluster, entity, [changes.OpData(key=key, remove=True) for key in keys])


async def _alter(cluster: Cluster, entity: Entity, ops: list[changes.OpData]) -> None:
    parts = [changes.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = changes.AlterClientQuotasRequest(entries=[changes.EntryData(entity=parts, ops=ops)])

    async def attempt() -> None:
        response = await cluster.request(request, AlterClientQuotasResponse)
        for entry in response.entries:
            check(entry.error_code, "quotas", entry.error_message)

    await cluster.retried(attempt)
