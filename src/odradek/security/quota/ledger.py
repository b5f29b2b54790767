"""The use of one kind of quota by clients, and their throttle times.

Pure: time is an argument. Clients that share a quota (`entities.Sharing`) share a token bucket with the quota's rate
that may be overdrawn. Over any time the use is at most the quota, the burst, and one request of each connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TypeVar

from odradek.common.numbers import INT32_MAX
from odradek.common.token_bucket import TokenBucket
from odradek.metadata.model import QuotaEntity
from odradek.security.quota.entities import Sharing, limit_of_client

N = TypeVar("N", str, str | None)

# Clients choose their client ids, and each one has an account.
MAX_ACCOUNTS = 10_000
# A name may have 32 KB: of one that is longer than this, an account is named by its beginning and a hash.
LONGEST_NAME = 256
# The throttle time of a client with the quota 0: the length of Kafka's windows.
WAIT_FOR_NOTHING_MS = 11_000


class Account(TokenBucket):
    """The use of one quota by the clients that share it.

    Attributes:
        limit: per second.
        amount: the total use.
        throttle_ms: the last throttle time, 0 if the last request had none.
        throttle_count, throttled_ms: the number of throttled requests, and their total throttle time.
    """

    __slots__ = ("_paid_at_ms", "amount", "limit", "throttle_count", "throttle_ms", "throttled_ms")

    def __init__(self, limit: float, *, burst_s: float, start_s: float) -> None:
        super().__init__(limit, burst_s=burst_s, start_s=start_s)
        self.limit = limit
        self.amount: float = 0
        # When the last request came, if it was not throttled. Those of the same turn have the same time: nothing has
        # come in since, and each costs an addition and a subtraction.
        self._paid_at_ms: int | None = None
        self.throttle_ms = self.throttle_count = self.throttled_ms = 0

    def pay(self, amount: float, now_ms: int) -> int:
        """Count use; returns the throttle time."""
        self.amount += amount
        tokens = self.tokens - amount
        if now_ms == self._paid_at_ms and tokens > 0.0:
            self.tokens = tokens
            return 0
        if self.refill_and_debit(amount, now_ms):
            return self._throttled(now_ms)
        self._paid_at_ms, self.throttle_ms = now_ms, 0
        return 0

    def use(self, amount: float) -> None:
        """Count use without a throttle time."""
        self.amount += amount
        self.debit(amount)

    def wait_ms(self, now_ms: int) -> int:
        """The throttle time of the client; counts it."""
        return self.pay(0, now_ms)

    def pay_unless_owing(self, amount: float, now_ms: int) -> int:
        """Count use, unless the client must wait first: returns the throttle time."""
        if now_ms != self._paid_at_ms or self.tokens <= 0.0:
            if self.refill_and_debit(0, now_ms):
                return self._throttled(now_ms)
            self._paid_at_ms, self.throttle_ms = now_ms, 0
        self.amount += amount
        self.tokens -= amount
        return 0

    def _throttled(self, now_ms: int) -> int:
        self._paid_at_ms = None
        wait_ms = self.ready_in_ms(now_ms)
        # No answer has room for a longer wait than this.
        wait_ms = self.throttle_ms = WAIT_FOR_NOTHING_MS if wait_ms is None else min(wait_ms, INT32_MAX)
        if wait_ms:
            self.throttle_count += 1
            self.throttled_ms += wait_ms
        return wait_ms


class QuotaLedger:
    """One kind of quota on one broker.

    Attributes:
        forgotten_count: the number of times that accounts were closed to free memory; callers must not use old
            accounts.
    """

    def __init__(self, key: str, window_s: float, *, saved_s: float | None = None) -> None:
        """
        Args:
            key: Kafka's name of the quota.
            window_s: the initial tokens of a client, in seconds of its rate.
            saved_s: the burst, in seconds of its rate; None: as `window_s`.
        """
        self.key = key
        self.window_s = window_s
        self._saved_s = window_s if saved_s is None else saved_s
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._accounts: dict[Sharing, Account] = {}
        # Cached for each client; None if it has no quota.
        self._by_client: dict[tuple[str, str], Account | None] = {}
        self.forgotten_count = 0

    @property
    def is_set(self) -> bool:
        """Whether there is any quota of this kind."""
        return any(self.key in each for each in self._quotas.values())

    def change_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply changed quotas. Debts of clients stay."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self._by_client.clear()
        if not self.is_set:
            self._accounts.clear()

    def account(self, user: str, client_id: str, now_ms: int) -> Account | None:
        """The account of a client; None if it has no quota."""
        client = (_short(user), _short(client_id))
        if client in self._by_client:
            return self._by_client[client]
        limit = limit_of_client(self._quotas, self.key, user, client_id)
        found = None
        if limit is not None:
            found = self._open((_short(limit.sharing[0]), _short(limit.sharing[1])), limit.value, now_ms)
        if len(self._by_client) >= MAX_ACCOUNTS:
            self._by_client.clear()
        self._by_client[client] = found
        return found

    def accounts(self) -> Iterator[tuple[Sharing, Account]]:
        """All accounts with their entities."""
        return iter(self._accounts.items())

    def _open(self, sharing: Sharing, limit: float, now_ms: int) -> Account:
        found = self._accounts.get(sharing)
        if found is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._close_some(now_ms)
            found = self._accounts[sharing] = Account(limit, burst_s=self._saved_s, start_s=self.window_s)
        found.limit = limit
        found.change_rate(limit, now_ms)
        return found

    def _close_some(self, now_ms: int) -> None:
        """Close accounts without debts; if there are none, the oldest tenth of all."""
        idle = [sharing for sharing, each in self._accounts.items() if not each.is_exhausted(now_ms)]
        for sharing in idle or list(self._accounts)[: MAX_ACCOUNTS // 10]:
            del self._accounts[sharing]
        self._by_client.clear()
        self.forgotten_count += 1


def _short(name: N) -> N:
    if name is None or len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}…{hashlib.sha256(name.encode()).hexdigest()}"
