"""The quota that applies to a client: Kafka's precedence over users, client ids and addresses (KIP-55, 257, 612)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.metadata.model import QuotaEntity

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

# Who shares one quota: the user and the client id as far as the quota names them, exactly or by default.
Sharing = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Limit:
    """One quota that holds.

    Attributes:
        value: per second; of request_percentage: percent of one thread.
        sharing: all clients of which this is the same spend it together.
    """

    value: float
    sharing: Sharing


def limit_of_client(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str
) -> Limit | None:
    """The most specific quota of `key`; None if there is none.

    A default entity is a separate quota for each user or client id that it matches.
    """
    for users in (user, None):
        for clients in (client_id, None):
            value = quotas.get(((CLIENT_ID, clients), (USER, users)), _NOTHING).get(key)
            if value is not None:
                return Limit(value, (user, client_id))
        value = quotas.get(((USER, users),), _NOTHING).get(key)
        if value is not None:
            return Limit(value, (user, None))
    for clients in (client_id, None):
        value = quotas.get(((CLIENT_ID, clients),), _NOTHING).get(key)
        if value is not None:
            return Limit(value, (None, client_id))
    return None


def limit_of_address(quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, address: str) -> float | None:
    """The quota of one address; the default if it has none of its own."""
    for each in (address, None):
        value = quotas.get(((IP, each),), _NOTHING).get(key)
        if value is not None:
            return value
    return None


_NOTHING: Mapping[str, float] = {}
