"""Metrics of quotas: what those clients used that have one, and how long they had to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Sample

if TYPE_CHECKING:
    from odradek.security.quota.ledger import QuotaLedger
    from odradek.server.network.request_quotas import RequestQuotas


def quota_families(quotas: RequestQuotas, mutations: QuotaLedger) -> Iterator[Family]:
    """By the user and the client id that a quota names; "" where it means any."""
    yield from _families(quotas.produce, "produce", "bytes", "Bytes of Produce requests", 1)
    yield from _families(quotas.fetch, "fetch", "bytes", "Bytes of fetched records", 1)
    yield from _families(quotas.request, "request", "seconds", "Seconds of the processor", 100)
    yield from _families(
        mutations, "controller_mutation", "partitions", "Partitions created and deleted by requests", 1
    )


def _families(ledger: QuotaLedger, kind: str, unit: str, what: str, units: int) -> Iterator[Family]:
    accounts = [(each, (("user", user or ""), ("client_id", name or ""))) for (user, name), each in ledger.accounts()]
    used = tuple(Sample(each.amount / units, labels) for each, labels in accounts)
    waited = tuple(Sample(each.throttled_ms / 1000, labels) for each, labels in accounts)
    now = tuple(Sample(each.throttle_ms / 1000, labels) for each, labels in accounts)
    clients = f"clients with {ledger.key}"
    yield Family(f"odradek_quota_{kind}_{unit}", "counter", f"{what} of {clients}.", used)
    yield Family(f"odradek_{kind}_throttle_seconds", "counter", f"Total throttle time of {clients}.", waited)
    yield Family(f"odradek_{kind}_throttle_time_seconds", "gauge", f"Last throttle time of {clients}; 0 if none.", now)
