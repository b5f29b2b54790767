"""Quotas of created and deleted partitions per second (KIP-599), enforced at the active controller.

Clients above their quota get THROTTLING_QUOTA_EXCEEDED for each topic, in versions with this error; older versions
succeed, and are throttled afterwards. The response has the throttle time; the broker of the client mutes its connection
for that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.security.quota.config import MutationQuotaConfig
from odradek.security.quota.ledger import Account, QuotaLedger

if TYPE_CHECKING:
    from odradek.common.ports import Clock
    from odradek.server.context import RequestContext

# The first versions with the error.
_STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}


class MutationQuotas:
    """The mutation quotas of clients."""

    def __init__(self, config: MutationQuotaConfig) -> None:
        self.ledger = QuotaLedger("controller_mutation_rate", config.window_count * config.window_s)

    def charge_of(self, context: RequestContext) -> MutationCharge | None:
        """The counter for the partitions of a request; None if it changes none, or its client has no quota."""
        strict_since = _STRICT_SINCE.get(ApiKey(context.api_key))
        if strict_since is None:
            return None
        self.ledger.change_quotas(context.broker.image.client_quotas)
        clock, user = context.broker.clock, context.principal.partition(":")[2]
        account = self.ledger.account(user, context.client_id, clock.monotonic_ms())
        if account is None:
            return None
        return MutationCharge(account, clock, is_strict=context.api_version >= strict_since)


class MutationCharge:
    """Counts the partitions of one request.

    Attributes:
        throttle_ms: how long the client must wait.
    """

    def __init__(self, account: Account, clock: Clock, *, is_strict: bool) -> None:
        self._account = account
        self._clock = clock
        self._is_strict = is_strict
        self._counted = 0
        self.throttle_ms = 0

    def __call__(self, partition_count: int) -> None:
        """
        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED.
        """
        now_ms = self._clock.monotonic_ms()
        if not self._is_strict:
            self._counted += partition_count
            self.throttle_ms = self._account.pay(partition_count, now_ms)
            return
        if self._account.is_exhausted(now_ms):
            self.throttle_ms = self._account.wait_ms(now_ms)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._counted += partition_count
        self._account.use(partition_count)

    def undo(self) -> None:
        """Take back all that was counted, since nothing of the request was done; idempotent."""
        self._account.use(-self._counted)
        self._counted = self.throttle_ms = 0
