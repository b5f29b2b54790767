"""Limits the connections of each address per second (KIP-612).

Pure: time is an argument. A connection above the limit is not counted: it waits, and is then closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.addresses import plain_address
from odradek.common.token_bucket import TokenBucket
from odradek.metadata.model import QuotaEntity
from odradek.security.quota.entities import IP, limit_of_address
from odradek.security.quota.ledger import MAX_ACCOUNTS

KEY = "connection_creation_rate"
# As long as Kafka holds a connection that it then closes.
MAX_WAIT_MS = 1000


class Arrivals:
    """The connections of each address, where quotas are set.

    Attributes:
        is_on: whether any is.
    """

    def __init__(self, burst_s: float) -> None:
        """`burst_s`: the burst in seconds of the rate; clients open their connections at once."""
        self._burst_s = burst_s
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._buckets: dict[str, TokenBucket | None] = {}
        self.is_on = False

    def change_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Go by these from now on."""
        found: dict[QuotaEntity, Mapping[str, float]] = {
            ((IP, None if name is None else plain_address(name)),): each
            for entity, each in quotas.items()
            for kind, name in entity
            if kind == IP
        }
        if found != self._quotas:
            self._quotas = found
            self._buckets.clear()
            self.is_on = bool(found)

    def wait_ms(self, host: str, now_ms: int) -> int:
        """Count a connection; returns the time to wait before it is closed, if it is above the limit."""
        bucket = self._buckets[host] if host in self._buckets else self._open(host)
        if bucket is None:
            return 0
        wait_ms = bucket.ready_in_ms(now_ms)
        if wait_ms == 0:
            bucket.spend(1, now_ms)
            return 0
        return MAX_WAIT_MS if wait_ms is None else min(wait_ms, MAX_WAIT_MS)

    def _open(self, host: str) -> TokenBucket | None:
        limit = limit_of_address(self._quotas, KEY, plain_address(host))
        if len(self._buckets) >= MAX_ACCOUNTS:
            self._buckets.clear()
        bucket = self._buckets[host] = None if limit is None else TokenBucket(limit, burst_s=self._burst_s)
        return bucket
