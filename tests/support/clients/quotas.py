"""Quotas of clients as tests set them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.support.clients.api_calls import Calls

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def entry(parts: dict[str, str | None], quotas: dict[str, float | None]) -> EntryData:
    """Changes of one entity; a quota of None is removed."""
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


def alter(calls: Calls, *entries: EntryData, validate_only: bool = False, version: int = 1) -> list[Any]:
    """The answer's entries."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = calls.request(ApiKey.ALTER_CLIENT_QUOTAS, version, request)
    return list(answer.entries)


def set_quotas(port: int, parts: dict[str, str | None], **quotas: float | None) -> None:
    """Set quotas, with a connection and a client id of its own."""
    with Calls(port, client_id="operator") as calls:
        codes = [each.error_code for each in alter(calls, entry(parts, quotas))]
    assert codes == [0]


@contextmanager
def quotas_set(port: int, parts: dict[str, str | None], **quotas: float) -> Iterator[None]:
    """Quotas for as long as the block lasts, for tests that share a node."""
    set_quotas(port, parts, **quotas)
    try:
        yield
    finally:
        set_quotas(port, parts, **dict.fromkeys(quotas))
